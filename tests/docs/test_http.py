"""docs/reference/http.md names every route and parameter of the web port, and its session runs."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from psoup.web.routes import PARAMETERS, ROUTES
from tests.support.docs.markdown import blocks, code, read, table
from tests.support.docs.sessions import Terminal, commands, replay
from tests.support.web import WebServer

PAGE = read("docs/reference/http.md")
ADDRESS = "127.0.0.1:7180"


def test_every_route_is_in_the_table() -> None:
    rows = [(code(row[0]), row[1], row[2]) for row in table(PAGE, "request", "call", "is")]
    assert rows == [(f"{route.method} {route.path}", route.rpc, route.summary) for route in ROUTES]


def test_every_parameter_is_in_the_table() -> None:
    rows = {code(row[0]): row[1] for row in table(PAGE, "parameter", "is")}
    assert rows == dict(PARAMETERS)
    assert {name for route in ROUTES for name in route.parameters} <= set(rows)


def _route(line: str) -> str:
    """Return the route that a line with curl calls."""
    words = shlex.split(line)
    address = next(word for word in words if word.startswith(ADDRESS))
    has_body = "-d" in words and "-sG" not in words
    method = words[words.index("-X") + 1] if "-X" in words else "POST" if has_body else "GET"
    path = urlsplit(f"http://{address}").path
    names = [
        route.path
        for route in ROUTES
        if route.method == method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", route.path), path)
    ]
    return f"{method} {min(names, key=lambda name: name.count('{'))}"


def test_the_session_calls_every_route() -> None:
    lines = [line for block in blocks(PAGE, "console") for line, _ in commands(block.text)]
    assert {_route(line) for line in lines} == {f"{route.method} {route.path}" for route in ROUTES}


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
def test_the_session_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PSOUP_TOKEN", "x")
    server = WebServer(tmp_path / "store")
    try:
        page = PAGE.replace(ADDRESS, f"127.0.0.1:{server.port}")
        lines = replay(page, Terminal(f"127.0.0.1:{server.server.port}", "main"))
    finally:
        server.stop()
    assert len(lines) >= len(ROUTES)
