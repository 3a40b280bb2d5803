"""Files of a store: other users of the machine may not read them, unless the operator allows it."""

from __future__ import annotations

import argparse
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from psoup.umask import VARIABLE, current_umask, parse_umask, set_umask
from tests.support.system.processes import RunningStore

ROWS = [{"a": number} for number in range(10)]


def modes(root: Path) -> dict[str, int]:
    """Return the permission bits of everything in a folder, by path."""
    return {
        str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")
    }


@pytest.mark.long
@pytest.mark.process
@pytest.mark.spark
def test_a_new_store_is_private_whatever_the_shell_says(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        with RunningStore(tmp_path) as running:
            running.start_server()
            with running.client() as client:
                client.define("CREATE STREAM s (a BIGINT)")
                client.register("SELECT a FROM s WHERE a > 3", key="some")
                client.publish("s", ROWS)
                running.start_engine()
                running.wait_until_matched(client)
    finally:
        os.umask(before)
    modes_by_path = modes(running.store)
    assert any(path.startswith("matches/") and path.endswith(".parquet") for path in modes_by_path)
    assert any(path.startswith("stems/") and path.endswith(".parquet") for path in modes_by_path)
    assert {path: oct(mode) for path, mode in modes_by_path.items() if mode & 0o077} == {}


@pytest.mark.long
@pytest.mark.process
def test_a_shared_store_stays_shared_without_the_option(tmp_path: Path) -> None:
    with RunningStore(tmp_path) as running:
        running.store.mkdir()
        running.store.chmod(0o2770)
        running.start_server("--umask", "007")
        running.servers[0].kill()
        running.start_server()
        with running.client(-1) as client:
            client.define("CREATE STREAM s (a BIGINT)")
            client.publish("s", ROWS)
    for path, mode in modes(running.store).items():
        expected = 0o2770 if (running.store / path).is_dir() else 0o660
        assert mode == expected, path


def test_an_operators_own_folder_does_not_open_the_store(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o755)
    before = current_umask()
    try:
        set_umask(store=tmp_path / "store")
        assert current_umask() == 0o077
        (tmp_path / "store" / "log").mkdir()
        (tmp_path / "store" / "log").chmod(0o750)
        set_umask(store=tmp_path / "store")
        assert current_umask() == 0o027
        set_umask(0o007, tmp_path / "store")
        assert current_umask() == 0o007
    finally:
        os.umask(before)


@pytest.mark.parametrize("text", ["", "8", "-1", "0777", "777", "700", "a", "0o77x"])
def test_only_a_umask_is_taken(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="octal"):
        parse_umask(text)


def test_executors_take_the_engines_umask() -> None:
    code = "from psoup.umask import *; set_umask(); print(f'{current_umask():03o}')"
    for setting, expected in ((None, "077"), ("007", "007")):
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        environment |= {} if setting is None else {VARIABLE: setting}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert done.stdout.strip() == expected
