"""Temporary folders of engines, named after the store and the process they belong to.

An engine removes its own when it ends. What a killed one left is removed by the next engine of the
same store.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path


def make_scratch(store_id: str) -> Path:
    """A new folder for this process; those of processes that are gone are removed.

    Whoever calls has the store's engine lock.
    """
    prefix = f"psoup-engine-{store_id}-"
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        owner = folder.name.removeprefix(prefix).partition("-")[0]
        if owner.isdigit() and not _runs(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
