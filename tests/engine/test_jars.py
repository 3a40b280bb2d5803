"""Jars that are downloaded are the ones that were recorded, or none is used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from psoup.engine.errors import JarsUnavailable
from psoup.engine.jars import HASHES, check_jars, delta_jars

pytestmark = pytest.mark.spark


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    """A folder with links to the jars of this machine."""
    for jar in delta_jars():
        os.symlink(jar, tmp_path / jar.name)
    return tmp_path


def test_the_recorded_jars_are_taken(jars: Path) -> None:
    check_jars(jars)


def change(jar: Path) -> None:
    content = bytearray(jar.read_bytes())
    content[len(content) // 2] ^= 1
    jar.unlink()
    jar.write_bytes(content)


@pytest.mark.parametrize("how", ["changed", "missing", "new"])
def test_another_jar_is_refused_by_name(how: str, jars: Path) -> None:
    name = HASHES.read_text().split()[1]
    match how:
        case "changed":
            change(jars / name)
        case "missing":
            (jars / name).unlink()
        case "new":
            name = "evil.jar"
            (jars / name).write_bytes(b"")
    with pytest.raises(JarsUnavailable, match=f"{name} is not the file"):
        check_jars(jars)
