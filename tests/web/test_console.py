"""The console in a real browser, over a real store."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from client_sdk import Client
from psoup.web.settings import WebSettings
from psoup.web.static_files import CONSOLE
from tests.support.browser import Browser, find_browser
from tests.support.web import WebServer

_MAX_LINES = 2500
_MAX_BYTES = 120_000


def test_console_is_small_and_its_own() -> None:
    files = [file for file in CONSOLE.rglob("*") if file.is_file()]
    texts = [file.read_text() for file in files]
    assert sum(len(text.splitlines()) for text in texts) <= _MAX_LINES
    assert sum(len(text.encode()) for text in texts) <= _MAX_BYTES
    for text in texts:
        # Nothing of a store may become HTML, and nothing comes from elsewhere.
        assert "innerHTML" not in text and "insertAdjacentHTML" not in text
        assert "https://" not in text
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    server = WebServer(tmp_path / "store")
    yield server
    server.stop()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip("there is no Chromium on this machine; PSOUP_BROWSER may name one")
    with Browser(program, tmp_path / "browser") as browser:
        yield browser


def fill(server: WebServer, rows: int = 600) -> datetime:
    """Create a stream with one row each ten seconds up to now."""
    server.define(
        "CREATE STREAM trades (symbol TEXT, price DOUBLE, at TIMESTAMP) ORDERED BY at RETAIN 7 DAYS"
    )
    now = datetime.now(UTC).replace(microsecond=0)
    with Client(f"127.0.0.1:{server.server.port}") as client:
        batch = [
            {
                "symbol": "IBM" if place % 2 else "SAP",
                "price": float(place),
                "at": now - timedelta(seconds=10 * (rows - 1 - place)),
            }
            for place in range(rows)
        ]
        client.publish("trades", batch)
    return now


def page(server: WebServer, path: str) -> str:
    return f"http://127.0.0.1:{server.port}/#/{path}"


_ROWS = (
    "Number((document.querySelector('main h2')?.textContent.match(/^(\\d+) row/) || [])[1] || 0)"
)


def slide(browser: Browser, label: str, share: float) -> None:
    browser.run(
        f"(() => {{ const slider = document.querySelector('input[aria-label={json.dumps(label)}]');"
        f" slider.value = String(Math.round(400 * {share}));"
        " slider.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


@pytest.mark.long
def test_sliding_the_window_and_as_of_under_load(server: WebServer, browser: Browser) -> None:
    now = fill(server)
    stopped = threading.Event()

    def publish() -> None:
        with Client(f"127.0.0.1:{server.server.port}") as client:
            while not stopped.wait(0.1):
                at = datetime.now(UTC)
                client.publish("trades", [{"symbol": "NVO", "price": 1.0, "at": at}] * 20)

    sql = "SELECT symbol, price FROM trades WHERE symbol <> 'NVO' RANGE 1 MINUTE"
    browser.open(page(server, f"query?sql={quote(sql)}"))
    assert browser.wait(_ROWS) in range(1, 9)
    thread = threading.Thread(target=publish)
    thread.start()
    try:
        for share in range(50, 101, 2):
            slide(browser, "The window", share / 100)
        browser.wait(f"{_ROWS} === 600")
    finally:
        stopped.set()
        thread.join()
    assert "window=RANGE" in browser.run("location.hash")
    browser.wait("document.querySelector('.chart .line, .chart .dot') !== null")
    slide(browser, "As of", 0.3)
    browser.wait(f"{_ROWS} < 600")
    # The address holds everything: the same page comes back from it.
    address, rows = browser.run("location.href"), browser.run(_ROWS)
    as_of = browser.run("new URLSearchParams(location.hash.split('?')[1]).get('as_of')")
    assert datetime.fromisoformat(as_of) < now
    browser.open("about:blank")
    browser.open(address)
    browser.wait(f"{_ROWS} === {rows} || {rows} === 0")
    assert browser.errors == []


@pytest.mark.long
def test_errors_are_underlined(server: WebServer, browser: Browser) -> None:
    fill(server, 5)
    browser.open(page(server, f"query?sql={quote('SELECT prize FROM trades RANGE 1 DAY')}"))
    assert browser.wait("document.querySelector('.t-bad')?.textContent") == "prize"
    assert "price" in browser.wait("document.querySelector('.failure p')?.textContent")


@pytest.mark.long
def test_store_goes_away_and_comes_back(tmp_path: Path, browser: Browser) -> None:
    first = WebServer(tmp_path / "store")
    fill(first, 20)
    browser.open(page(first, "streams"))
    browser.wait("document.querySelector('td.number')?.textContent === '20'")
    settings = dataclasses.replace(first.settings, port=0)
    web = WebSettings(port=first.port)
    first.stop()
    browser.wait("!document.querySelector('.banner').hidden")
    assert "has not answered since" in browser.run("document.querySelector('.banner').textContent")
    second = WebServer(settings, web)
    try:
        browser.wait("document.querySelector('.banner').hidden")
        second.define("CREATE STREAM later (x BIGINT)")
        browser.wait("document.body.innerText.includes('later')")
    finally:
        second.stop()
    assert browser.errors == []
