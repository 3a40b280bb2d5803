"""README.md: its session runs as it is written, with the file it shows."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docs.markdown import ROOT, blocks, read
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


@pytest.mark.process
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
def test_five_lines_lead_to_an_answer_by_curl(tmp_path: Path) -> None:
    """All but the installation runs as it is written, at ports of its own."""
    (block,) = (block for block in blocks(PAGE, "bash") if "curl" in block.text)
    install, serve, *calls = block.text.splitlines()
    assert len(calls) == 3
    match = re.fullmatch(r"pip install '\.\[(.*)\]'", install)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert match and set(match[1].split(",")) <= project["optional-dependencies"].keys()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    words = [*serve.removesuffix(" &").split(), "--listen", "127.0.0.1:0", "--web", address]
    assert words.pop(0) == "psoup"
    process = subprocess.Popen([sys.executable, "-m", "psoup.cli", *words], cwd=tmp_path)
    try:
        for call in calls:
            line = call.replace("127.0.0.1:7180", address)
            output = subprocess.run(line, shell=True, capture_output=True, check=True).stdout
    finally:
        process.terminate()
        process.wait()
    assert json.loads(output)["rows"] == [["IBM", 184.5]]


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
