"""README.md: its session runs as it is written, with the file it shows."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_pulls import Terminal
from tests.support.docs.markdown import ROOT, blocks, read
from tests.support.server.process import ServerProcess

PAGE = read("README.md")


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    process = ServerProcess(tmp_path / "store", "--durability", "none")
    monkeypatch.chdir(tmp_path)
    yield Terminal(process.address, "main")
    process.stop()


def _commands() -> Iterator[tuple[str, str]]:
    """Each command, quoted texts over several lines included, and what follows it."""
    session = next(blocks(PAGE, "console")).text
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        found = re.match(r'(?:[^"\n]|"[^"]*")*\n', part)
        assert found, part
        yield found[0].strip(), part[found.end() :]


def _settled(text: str) -> list[str]:
    """Without handles, and without what an engine and the machine make of the last line."""
    text = re.sub(r"\b[0-9a-f]{32}\b", "(handle)", text)
    text = re.sub(r"^  .* computed on the spot.*$", "  (work)", text, flags=re.MULTILINE)
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.process
def test_the_session_runs_as_written(terminal: Terminal) -> None:
    ran = []
    for line, shown in _commands():
        if line.startswith("cat "):
            Path(line.removeprefix("cat ")).write_text(shown)
        assert _settled(terminal.run(line)) == _settled(shown), line
        ran.append(line.split()[1])
    assert {"trades.csv", "stream", "register", "publish", "invoke"} <= set(ran)


def test_the_licence_is_named_where_people_and_programs_look() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    text = (ROOT / "LICENSE").read_text()
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "END OF TERMS AND CONDITIONS" in text
    assert "(LICENSE)" in PAGE
