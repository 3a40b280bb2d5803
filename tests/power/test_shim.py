"""The recorder and the replayed disk: synced files are there after each cut, others may be."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.power.disk import Recording
from tests.power.recorder import environment

CUTS = 60


@pytest.fixture
def ends(tmp_path: Path) -> Callable[[str], list[dict[str, bytes]]]:
    """Run a program over an empty folder; return the files that remain after many cuts at its
    end."""

    def run(program: str) -> list[dict[str, bytes]]:
        store, journal = tmp_path / "store", tmp_path / "journal"
        store.mkdir()
        variables = os.environ | environment(store, journal)
        subprocess.run([sys.executable, "-c", program], cwd=store, env=variables, check=True)
        recording = Recording(journal)
        return [files_after_cut(recording, tmp_path / str(seed), seed) for seed in range(CUTS)]

    return run


def files_after_cut(recording: Recording, folder: Path, seed: int) -> dict[str, bytes]:
    recording.restore(len(recording), folder, random.Random(seed))
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


Ends = Callable[[str], list[dict[str, bytes]]]


def test_what_was_synced_stays(ends: Ends) -> None:
    outcomes = ends(
        "from pathlib import Path\n"
        "from psoup.store.delta.durable import put_if_absent, replace_file, write_durably\n"
        "here = Path.cwd()\n"
        "put_if_absent(here / 'a', b'first')\n"
        "write_durably(here / 'b/c/d', lambda path: path.write_bytes(b'deep') and None, top=here)\n"
        "replace_file(here / 'a', b'second')\n"
    )
    for files in outcomes:
        assert files["a"] == b"second" and files["b/c/d"] == b"deep"


def test_what_was_not_synced_may_be_anything(ends: Ends) -> None:
    outcomes = ends(
        "import os\nfrom pathlib import Path\nPath('a').write_bytes(b'whole')\nos.link('a', 'b')\n"
    )
    assert {files.get("a") for files in outcomes} >= {None, b"", b"wh", b"whole", bytes(5)}
    assert {("a" in files, "b" in files) for files in outcomes} == {
        (has_a, has_b) for has_a in (True, False) for has_b in (True, False)
    }


def test_a_name_is_not_durable_before_its_folder(ends: Ends) -> None:
    outcomes = ends(
        "import os\n"
        "from pathlib import Path\n"
        "from psoup.store.delta.durable import put_if_absent\n"
        "os.mkdir('b')\n"
        "put_if_absent(Path.cwd() / 'b/c', b'there')\n"
    )
    assert {files.get("b/c") for files in outcomes} == {None, b"there"}


def test_a_removal_may_be_undone(ends: Ends) -> None:
    outcomes = ends(
        "from pathlib import Path\n"
        "from psoup.store.delta.durable import put_if_absent, remove\n"
        "put_if_absent(Path.cwd() / 'a', b'there')\n"
        "remove([Path.cwd() / 'a'])\n"
    )
    assert {files.get("a") for files in outcomes} == {None, b"there"}
