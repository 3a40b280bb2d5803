"""A store opens and makes checkpoints while servers append to its log.

Found by twenty kills of the engine under load: whoever lists a folder while files are added may
see a later commit and miss an earlier one. `deltalake` lists, and calls that a gap.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
from pathlib import Path

from psoup.store import Store
from psoup.store.delta import DeltaFolder

COMMITS = 200
MOST = 1500
OPENINGS = 10


def append(root: Path, first: int, ending: multiprocessing.synchronize.Event) -> None:
    """Commits without files, as fast as they can be made, but not so many that opening is slow."""
    folder = DeltaFolder(root)
    for version in range(first, MOST):
        if ending.is_set():
            return
        folder.commit(version, operation="APPEND", sync=False)


def test_a_store_opens_and_checkpoints_while_its_log_grows(tmp_path: Path) -> None:
    log = Store.open(tmp_path, create=True).log.folder
    for version in range(1, COMMITS):
        log.commit(version, operation="APPEND", sync=False)
    context = multiprocessing.get_context("spawn")
    ending = context.Event()
    writer = context.Process(target=append, args=(log.root, COMMITS, ending))
    writer.start()
    try:
        while log.latest_version(COMMITS - 1) < COMMITS:
            pass
        opened = {Store.open(tmp_path).id for _ in range(OPENINGS)}
        for _ in range(2):
            log.checkpoint()
    finally:
        ending.set()
        writer.join()
    assert len(opened) == 1
