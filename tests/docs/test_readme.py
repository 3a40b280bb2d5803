"""README.md: its session runs as it is written, with the file it shows."""

from __future__ import annotations

import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docs.markdown import ROOT, read
from tests.support.docs.sessions import Terminal, replay
from tests.support.server.process import ServerProcess

PAGE = read("README.md")


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    process = ServerProcess(tmp_path / "store", "--durability", "none")
    monkeypatch.chdir(tmp_path)
    yield Terminal(process.address, "main")
    process.stop()


@pytest.mark.process
def test_the_session_runs_as_written(terminal: Terminal) -> None:
    commands = replay(PAGE, terminal)
    names = {command.split()[1] for command in commands}
    assert {"trades.csv", "stream", "register", "publish", "invoke"} <= names


def test_the_picture_shows_the_session() -> None:
    path = ROOT / "scripts" / "session_picture.py"
    names = runpy.run_path(str(path))
    drawn = names["PICTURE"].read_text(encoding="utf-8")
    assert drawn == names["picture"](PAGE), "run python scripts/session_picture.py"


def test_the_licence_is_named_where_people_and_programs_look() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    text = (ROOT / "LICENSE").read_text()
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "END OF TERMS AND CONDITIONS" in text
    assert "(LICENSE)" in PAGE
