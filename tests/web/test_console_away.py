"""The console under load, without its server, without a network, hidden, and in two tabs."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from psoup.web.settings import WebSettings
from tests.support.browser import Browser
from tests.support.web import WebServer
from tests.web.pages import ANSWER_ROWS, client, fill, page, press, slide

pytestmark = pytest.mark.long

_BANNER = "document.querySelector('.banner')"
_FIRST_COUNT = "document.querySelector('td.number')?.textContent"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    server = WebServer(tmp_path / "store")
    yield server
    server.stop()


def test_sliding_the_window_and_as_of_under_load(server: WebServer, browser: Browser) -> None:
    now = fill(server)
    stopped = threading.Event()

    def publish() -> None:
        with client(server) as session:
            while not stopped.wait(0.1):
                at = datetime.now(UTC)
                session.publish("trades", [{"symbol": "NVO", "price": 1.0, "at": at}] * 20)

    sql = "SELECT symbol, price FROM trades WHERE symbol <> 'NVO' RANGE 1 MINUTE"
    browser.open(page(server, "query", sql=sql))
    assert browser.wait(ANSWER_ROWS) in range(1, 9)
    thread = threading.Thread(target=publish)
    thread.start()
    try:
        for share in range(50, 101, 2):
            slide(browser, "The window", share / 100)
        browser.wait(f"{ANSWER_ROWS} === 600")
    finally:
        stopped.set()
        thread.join()
    assert "window=RANGE" in browser.run("location.hash")
    browser.wait("document.querySelector('.chart .line, .chart .dot') !== null")
    slide(browser, "As of", 0.3)
    browser.wait(f"{ANSWER_ROWS} < 600")
    # The address holds everything: the same page comes back from it.
    address, rows = browser.run("location.href"), browser.run(ANSWER_ROWS)
    as_of = browser.run("new URLSearchParams(location.hash.split('?')[1]).get('as_of')")
    assert datetime.fromisoformat(as_of) < now
    browser.open("about:blank")
    browser.open(address)
    browser.wait(f"{ANSWER_ROWS} === {rows} || {rows} === 0")
    browser.call("Page.reload")
    browser.wait(f"{ANSWER_ROWS} === {rows} || {rows} === 0")
    assert browser.errors == []


def test_store_goes_away_and_comes_back(tmp_path: Path, browser: Browser) -> None:
    first = WebServer(tmp_path / "store")
    fill(first, 20)
    first.register("dear", "SELECT symbol FROM trades WHERE price >= 0 RANGE 1 DAY")
    live = browser.tab
    browser.open(page(first, "registrations/dear"))
    browser.wait("document.querySelectorAll('.answer tbody tr').length === 10")
    assert "20 rows" in browser.run("document.body.innerText")
    second_tab = browser.new_tab()
    browser.open(page(first, "streams"))
    browser.wait(f"{_FIRST_COUNT} === '20'")
    settings = dataclasses.replace(first.settings, port=0)
    web = WebSettings(port=first.port)
    first.stop()
    browser.wait(f"!{_BANNER}.hidden")
    assert "has not answered since" in browser.run(f"{_BANNER}.textContent")
    second = WebServer(settings, web)
    try:
        browser.wait(f"{_BANNER}.hidden")
        second.define("CREATE STREAM later (x BIGINT)")
        browser.wait("document.body.innerText.includes('later')")
        with client(second) as session:
            at = datetime.now(UTC)
            session.publish("trades", [{"symbol": "NEW", "price": 1.0, "at": at}])
        # The other tab follows its answer again, from where it was.
        browser.switch(live)
        browser.wait("document.querySelector('.answer tbody td')?.textContent === 'NEW'")
        browser.switch(second_tab)
    finally:
        second.stop()
    assert browser.errors == []


def test_a_page_without_a_network_keeps_what_it_has(server: WebServer, browser: Browser) -> None:
    fill(server, 30)
    browser.open(page(server, "query", sql="SELECT symbol FROM trades RANGE 1 DAY", live="1"))
    browser.wait(f"{ANSWER_ROWS} === 30")
    browser.cut(True)
    browser.wait(f"!{_BANNER}.hidden")
    assert browser.run(ANSWER_ROWS) == 30
    with client(server) as session:
        at = datetime.now(UTC)
        session.publish("trades", [{"symbol": "NVO", "price": 1.0, "at": at}])
    browser.cut(False)
    browser.wait(f"{_BANNER}.hidden && {ANSWER_ROWS} === 31")
    assert browser.errors == []


def test_a_hidden_page_asks_for_nothing(server: WebServer, browser: Browser) -> None:
    fill(server, 10)
    browser.open(page(server, "streams/trades"))
    browser.wait("document.querySelectorAll('.answer tbody tr').length === 10")
    calls = "performance.getEntriesByType('resource').length"
    before = browser.run(calls)
    browser.wait(f"{calls} > {before}")
    browser.run("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    # What was asked before may still come in; after that there is nothing for three rounds.
    pause = "new Promise(resolve => setTimeout(resolve, 3000))"
    browser.run(pause)
    quiet = browser.run(calls)
    browser.run(pause)
    assert browser.run(calls) == quiet
    browser.run("Object.defineProperty(document, 'hidden', {value: false, configurable: true})")
    browser.wait(f"{calls} > {quiet}")


def test_two_tabs_publish_and_follow(server: WebServer, browser: Browser) -> None:
    server.define("CREATE STREAM notes (x BIGINT) RETAIN 1 HOUR")
    server.register("recent", "SELECT x FROM notes RANGE 3 SECONDS")
    reader = browser.tab
    browser.open(page(server, "registrations/recent"))
    browser.wait("document.body.innerText.includes('No rows at present')")
    writer = browser.new_tab()
    browser.open(page(server, "streams/notes"))
    browser.wait("document.querySelector('textarea.plain')?.value.includes('x')")
    press(browser, "Publish ")
    browser.wait("document.body.innerText.includes('1 row published')")
    browser.switch(reader)
    # The row comes by a change, and goes by the clock of the page.
    browser.wait("document.body.innerText.includes('1 came')")
    browser.wait("document.body.innerText.includes('1 left by time')")
    browser.wait("document.body.innerText.includes('No rows at present')")
    browser.switch(writer)
    browser.wait("document.querySelectorAll('.answer tbody tr').length === 1")
    assert browser.errors == []
