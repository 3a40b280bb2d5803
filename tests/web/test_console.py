"""The console: its files, and every page of it in a real browser over a real store."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from psoup.web.static_files import CONSOLE
from tests.conftest import ROOT
from tests.support.browser import Browser
from tests.support.web import WebServer
from tests.web.pages import ANSWER_ROWS, PAGES, TEXT, client, enter, fill, page, press

_MAX_LINES = 2500
_MAX_BYTES = 121_000
_TYPESCRIPT = "typescript@5.9.3"
_SCRIPTS = ("psoup/web/console/main.js", "examples/fleet/page/main.js")


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


@pytest.mark.long
def test_types_of_the_scripts(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm, to fetch TypeScript")
    fetch = [npm, "install", "--prefix", str(tmp_path), "--no-save", "--prefer-offline"]
    if subprocess.run([*fetch, _TYPESCRIPT], capture_output=True, timeout=120).returncode:
        pytest.skip(f"npm can't fetch {_TYPESCRIPT}")
    compiler = tmp_path / "node_modules" / ".bin" / "tsc"
    # What a store answers is `any`, so what is made of it may be, too.
    options = (
        "--allowJs --checkJs --noEmit --strict --noImplicitAny false --target es2022 "
        "--useUnknownInCatchVariables false --module esnext --moduleResolution bundler "
        "--lib es2023,dom,dom.iterable"
    )
    for script in _SCRIPTS:
        command = [str(compiler), *options.split(), script]
        checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert checked.returncode == 0, checked.stdout


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    server = WebServer(tmp_path / "store")
    yield server
    server.stop()


def test_every_page_opens_and_errors_are_underlined(server: WebServer, browser: Browser) -> None:
    fill(server, 5)
    server.register("dear", "SELECT symbol, price FROM trades WHERE price > 1 RANGE 1 DAY")
    headings = {"streams": "Streams", "query": "Query", "registrations": "Registrations"}
    headings |= {"engine": "Engine", "people": "People", "streams/trades": "trades"}
    headings |= {"registrations/dear": "dear"}
    for path in (*PAGES, "streams/trades", "registrations/dear"):
        browser.open(page(server, path))
        browser.wait(f"document.querySelector('h1')?.textContent === '{headings[path]}'")
        browser.wait("document.querySelectorAll('main .panel').length > 0")
    browser.wait("document.querySelector('.tree .box') !== null")
    browser.open(page(server, "query", sql="SELECT prize FROM trades RANGE 1 DAY"))
    assert browser.wait("document.querySelector('.t-bad')?.textContent") == "prize"
    assert "price" in browser.wait("document.querySelector('.failure p')?.textContent")
    assert browser.run("document.querySelector('.editor textarea').ariaInvalid") == "true"
    assert browser.errors == []


@pytest.mark.long
def test_an_empty_store_teaches(server: WebServer, browser: Browser) -> None:
    """From nothing to an answer without leaving the pages."""
    browser.open(page(server, "query"))
    browser.wait(f"{TEXT}.includes('Nothing to ask yet')")
    browser.open(page(server, "registrations"))
    browser.wait(f"{TEXT}.includes('No registrations yet')")
    browser.open(page(server, "streams"))
    browser.wait(f"{TEXT}.includes('No streams yet')")
    press(browser, "Create Ctrl")
    press(browser, "trades")
    browser.wait(f"{TEXT}.includes('No rows yet')")
    # The form has a row that the stream takes.
    press(browser, "Publish ")
    browser.wait(f"{TEXT}.includes('1 row published')")
    browser.wait("document.querySelectorAll('.answer tbody tr').length === 1")
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    enter(browser, "textarea.plain", f'symbol,price,size,at\n"<b>",2,3,{now}\n')
    press(browser, "Publish ")
    browser.wait("document.querySelectorAll('.answer tbody tr').length === 2")
    enter(browser, "textarea.plain", '{"symbol": 5}')
    press(browser, "Publish ")
    browser.wait("document.querySelector('.failure') !== null")
    press(browser, "Query it")
    assert browser.wait(ANSWER_ROWS) == 2
    press(browser, "Register…")
    enter(browser, "dialog[open] input[required]", "mine")
    browser.run("document.querySelector('dialog[open] form').requestSubmit()")
    browser.wait("document.querySelector('h1')?.textContent === 'mine'")
    press(browser, "Unregister")
    browser.run("document.querySelector('dialog[open] form').requestSubmit()")
    browser.wait(f"{TEXT}.includes('No registrations yet')")
    assert browser.errors == []


@pytest.mark.long
def test_keys_go_to_pages_and_pages_fit_phones(server: WebServer, browser: Browser) -> None:
    fill(server, 50)
    with client(server) as session:
        long_name = "a_name_that_is_long_enough_to_be_in_the_way_of_what_is_beside_it"
        session.define(f"CREATE STREAM {long_name} ({long_name} TEXT)")
        session.register(f"SELECT {long_name} FROM {long_name} RANGE 1 DAY", key=long_name)
    browser.open(page(server, "streams"))
    browser.wait("document.querySelector('td') !== null")
    for width in (1440, 390):
        browser.resize(width, 844)
        for number, name in enumerate(PAGES, 1):
            browser.run(
                "document.activeElement?.blur(); document.body.dispatchEvent("
                f"new KeyboardEvent('keydown', {{key: '{number}', bubbles: true}}))"
            )
            browser.wait(f"location.hash.startsWith('#/{name}')")
            browser.wait("document.querySelectorAll('main .panel, main .empty').length > 0")
            over = browser.run("document.documentElement.scrollWidth - innerWidth")
            assert over <= 0, f"{name} is {over} px too wide at {width}"
    assert browser.errors == []
