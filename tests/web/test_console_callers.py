"""The console for callers with keys: logging in, what a reader sees, and text that means harm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.browser import Browser
from tests.support.web import WebServer
from tests.web.pages import PAGES, TEXT, KeyedServer, client, enter, page, press
from tests.web.test_session import TlsServer

pytestmark = pytest.mark.long

_DIALOG = "document.querySelector('dialog[open] input[type=password]')"
# Tags, quotes, and a mark that would turn the direction of what follows.
HOSTILE = "<img src=x onerror='window.harm=1'>\"'\u202e\u2066${1}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KeyedServer]:
    server = KeyedServer(tmp_path / "store")
    yield server
    server.stop()


def log_in(browser: Browser, key: str) -> None:
    browser.wait(f"{_DIALOG} !== null")
    enter(browser, "dialog[open] input[type=password]", key)
    browser.run("document.querySelector('dialog[open] form').requestSubmit()")


def test_logging_in_and_out(server: KeyedServer, browser: Browser) -> None:
    server.token = server.key("ann", "administrator")
    server.define("CREATE STREAM secrets (x BIGINT)")
    browser.open(page(server, "streams"))
    log_in(browser, "psk_0123456789abcdef_" + "x" * 43)
    browser.wait("document.querySelector('dialog[open] .failure') !== null")
    assert "secrets" not in browser.run(TEXT)
    log_in(browser, server.token)
    browser.wait(f"{TEXT}.includes('secrets') && {_DIALOG} === null")
    browser.call("Page.reload")
    browser.wait(f"{TEXT}.includes('secrets')")
    # Another tab is logged in by itself: without TLS the key stays in this one.
    tab = browser.tab
    browser.new_tab()
    browser.open(page(server, "streams"))
    browser.wait(f"{_DIALOG} !== null")
    browser.switch(tab)
    press(browser, "Log out")
    browser.wait(f"{_DIALOG} !== null")
    assert "secrets" not in browser.run(TEXT) and browser.run("sessionStorage.length") <= 1
    assert server.token not in browser.run("JSON.stringify({...sessionStorage, ...localStorage})")
    assert browser.errors == []


def test_logging_in_with_a_cookie(tmp_path: Path, browser: Browser) -> None:
    server = TlsServer(tmp_path, auth=("keys",))
    try:
        key = server.token = server.key()
        server.define("CREATE STREAM secrets (x BIGINT)")
        browser.call("Security.setIgnoreCertificateErrors", ignore=True)
        browser.open(f"https://localhost:{server.port}/#/streams")
        log_in(browser, key)
        browser.wait(f"{TEXT}.includes('secrets')")
        # Scripts can't read the log-in, and it outlives the page.
        kept = "JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie])"
        assert key not in browser.run(kept) and "psoup=" not in browser.run(kept)
        browser.call("Page.reload")
        browser.wait(f"{TEXT}.includes('secrets')")
        press(browser, "Create a stream")
        enter(browser, ".editor textarea", "CREATE STREAM later (x BIGINT)")
        press(browser, "Create Ctrl")
        browser.wait(f"{TEXT}.includes('later')")
        press(browser, "Log out")
        browser.wait(f"{_DIALOG} !== null")
        assert browser.errors == []
    finally:
        server.stop()


def test_a_reader_is_told_what_is_missing(server: KeyedServer, browser: Browser) -> None:
    server.token = server.key("ann", "administrator")
    with client(server) as session:
        session.define("CREATE STREAM trades (symbol TEXT, price DOUBLE) RETAIN 1 DAY")
        session.publish("trades", [{"symbol": "IBM", "price": 1.0}] * 20)
        session.register("SELECT symbol FROM trades RANGE 1 DAY", key="of-ann")
    reader = server.key("bob", "reader")
    browser.open(page(server, "streams"))
    log_in(browser, reader)
    browser.wait(f"{TEXT}.includes('trades')")

    press(browser, "Create a stream")
    enter(browser, ".editor textarea", "CREATE STREAM mine (x BIGINT)")
    press(browser, "Create Ctrl")
    browser.wait("document.querySelector('.failure') !== null")
    browser.open(page(server, "streams/trades"))
    browser.wait("document.querySelectorAll('.answer tbody tr').length === 20")
    press(browser, "Publish ")
    browser.wait("/publish/.test(document.querySelector('.failure')?.textContent)")
    browser.wait(f"{TEXT}.includes('None of yours')")

    browser.open(page(server, "query", sql="SELECT symbol FROM trades RANGE 1 DAY"))
    browser.wait(f"{TEXT}.includes('20 rows')")
    browser.open(page(server, "registrations"))
    browser.wait(f"{TEXT}.includes('No registrations yet')")
    assert "of-ann" not in browser.run(TEXT)
    browser.open(page(server, "registrations/of-ann", owner="ann"))
    browser.wait("document.querySelector('.failure') !== null")

    browser.open(page(server, "engine"))
    browser.wait("document.querySelectorAll('.tile').length === 10")
    assert "You see your own share" in browser.run(TEXT)
    browser.open(page(server, "people"))
    browser.wait("document.querySelectorAll('main h3').length >= 3")
    browser.wait("![...document.querySelectorAll('main p')].some(p => p.textContent === '…')")
    refused = (
        "[...document.querySelectorAll('main h3')].filter(h => h.textContent.includes('Not for'))"
    )
    assert browser.run(f"{refused}.length") >= 2
    assert "bob" in browser.run(TEXT) and "ann" not in browser.run(TEXT)
    assert browser.errors == []


def test_a_revoked_key_ends_the_log_in(server: KeyedServer, browser: Browser) -> None:
    server.token = server.key("ann", "administrator")
    browser.open(page(server, "streams"))
    log_in(browser, server.key("bob", "reader"))
    browser.wait(f"{TEXT}.includes('No streams yet')")
    (key,) = (key for key in server.json("/v1/keys")["keys"] if key["owner"] == "bob")
    with client(server) as session:
        session.revoke_key(key["id"])
    browser.wait(f"{_DIALOG} !== null")


def hostile_store(server: KeyedServer) -> dict[str, str]:
    """Put the text into every field that a page shows, and return the pages that show some."""
    server.token = server.key(HOSTILE, "administrator", HOSTILE)
    text = "'" + HOSTILE.replace("'", "''") + "'"
    with client(server) as session:
        session.define("CREATE STREAM notes (who TEXT, n BIGINT) RETAIN 1 DAY")
        session.define(f"CREATE VIEW others AS SELECT who FROM notes WHERE who <> {text}")
        session.define(f"CREATE POLICY mine ON notes USING (who = claim('who') OR who <> {text})")
        session.define(f"GRANT READ ON notes TO ROLE {text}")
        session.set_quota({"registrations": 100}, owner=HOSTILE)
        session.publish("notes", [{"who": f"{HOSTILE}\0", "n": 1}])
        sql = f"SELECT who, n FROM notes WHERE who <> :p AND who <> {text} RANGE 1 DAY -- {HOSTILE}"
        session.register(sql, key=HOSTILE, parameters={"p": HOSTILE})
    escaped = quote(HOSTILE, safe="")
    return {
        "streams": page(server, "streams"),
        "stream": page(server, "streams/notes"),
        "registrations": page(server, "registrations"),
        "registration": page(server, f"registrations/{escaped}"),
        "query": page(server, "query", sql="SELECT who, n FROM notes RANGE 1 DAY"),
        "error": page(server, "query", sql=f"SELECT {text} + 1 FROM notes RANGE 1 DAY"),
        "of a key": page(server, "query", key=HOSTILE),
        "engine": page(server, "engine"),
        "people": page(server, "people"),
        "no stream": page(server, f"streams/{escaped}"),
        "no page": page(server, escaped),
    }


# Texts outside of the editor, whose text has to be the one that is edited.
_TEXTS = """(() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) {
    const inside = walker.currentNode.parentElement.closest('.editor, textarea, script');
    if (!inside) texts.push(walker.currentNode.data);
  }
  return texts;
})()"""


def test_hostile_text_in_every_field(server: KeyedServer, browser: Browser) -> None:
    pages = hostile_store(server)
    browser.open(pages["streams"])
    log_in(browser, server.token)
    browser.wait(f"{TEXT}.includes('onerror')")
    for name, address in pages.items():
        browser.open("about:blank")
        browser.open(address)
        if name != "no page":
            browser.wait(f"{TEXT}.includes('<img')", 30)
        browser.wait("document.querySelectorAll('main .panel, main .empty, .failure').length > 0")
        browser.run("new Promise(resolve => setTimeout(resolve, 1500))")
        assert browser.run("window.harm === undefined && !document.querySelector('img[src=x]')")
        texts = browser.run(_TEXTS)
        odd = [text for text in texts if {"\0", "\u202e", "\u2066"} & {*text}]
        assert odd == [], f"{name}: {json.dumps(odd)}"
    assert browser.errors == []
    assert {*PAGES} <= {*pages}


def test_hostile_keys_in_a_store_that_asks_nobody(tmp_path: Path, browser: Browser) -> None:
    """A chart has lines named by values of rows."""
    server = WebServer(tmp_path / "store")
    try:
        server.define("CREATE STREAM notes (who TEXT, n BIGINT) RETAIN 1 DAY")
        with client(server) as session:
            session.publish("notes", [{"who": HOSTILE, "n": 5}, {"who": "ann", "n": 6}])
        sql = "SELECT who, sum(n) AS n FROM notes GROUP BY who RANGE 1 DAY"
        browser.open(page(server, "query", sql=sql))
        browser.wait("document.querySelectorAll('.legend .key').length === 2")
        assert not any("\u202e" in text for text in browser.run(_TEXTS))
        assert browser.errors == []
    finally:
        server.stop()
