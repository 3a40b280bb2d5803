"""The tutorial and the how-to pages: their sessions and their Python run as they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.docs.markdown import blocks, read
from tests.support.docs.sessions import Terminal, replay
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process


@pytest.fixture
def address(shared_server: ServerProcess) -> str:
    return shared_server.address


@pytest.mark.parametrize(
    ("page", "least"),
    [("docs/tutorial.md", 14), ("docs/how-to/feed.md", 5), ("docs/how-to/keep-a-copy.md", 9)],
)
def test_the_session_runs_as_written(
    page: str, least: int, address: str, tenant: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = replay(read(page), Terminal(address, tenant))
    assert len([command for command in ran if command.startswith("psoup ")]) >= least


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/feed.md", "docs/how-to/keep-a-copy.md"])
def test_the_python_runs_after_the_session(
    page: str, address: str, tenant: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    terminal = Terminal(address, tenant)
    replay(read(page), terminal)
    for block in blocks(read(page), "python"):
        target = f'Client("{address}", tenant="{tenant}")'
        exec(block.text.replace('Client("localhost:7181")', target), {})
