"""The demo one can see: phones that keep copies, and the page that shows them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support.browser import Browser
from tests.support.web import WebServer

_SECONDS = 20.0
_HOSTILE = "<img src=x onerror=alert(1)>\u202e\u0007"


def wait(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + _SECONDS
    while not (value := look()):
        assert time.monotonic() < deadline, "never true"
        time.sleep(0.02)
    return value


class Page:
    """A client of the page's server."""

    def __init__(self, port: int) -> None:
        self.port = port

    def send(self, method: str, path: str, body: str | None = None, **headers: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        try:
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, names)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def press(self, phone: str, action: str, **body: Any) -> None:
        path = f"/phones/{phone}/{action}"
        status, _ = self.send("POST", path, json.dumps(body), content_type="application/json")
        assert status == 200

    def state(self) -> Any:
        """Return the first event of the stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        try:
            connection.request("GET", "/events")
            line = connection.getresponse().readline()
            return json.loads(line.removeprefix(b"data: "))
        finally:
            connection.close()

    def phone(self, name: str) -> Any:
        return next((phone for phone in self.state()["phones"] if phone["name"] == name), None)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """The page over a store without an engine, in a hurry: a window of two seconds."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from fleet import board, phone, web

    monkeypatch.setattr(phone, "NEAR", phone.NEAR.replace("45 SECONDS", "2 SECONDS"))
    monkeypatch.setattr(phone, "TICK_SECONDS", 0.1)
    monkeypatch.setattr(board, "REPORT_SECONDS", 0.2)
    store = WebServer(tmp_path / "store")
    try:
        with board.Board(f"127.0.0.1:{store.server.port}", tmp_path) as running:
            server = web.PageServer()
            server.start(running)
            try:
                yield Page(server.port)
            finally:
                server.close()
    finally:
        store.stop()


def test_a_phone_is_unplugged_edited_and_plugged_in(page: Page) -> None:
    wait(lambda: (ben := page.phone("Ben")) and ben["points"] and ben["jobs"])
    page.press("Ben", "unplug")
    away = wait(lambda: (ben := page.phone("Ben")) and not ben["plugged"] and ben)
    page.press("Ben", "advance", job=1)
    page.press("Ben", "add", title=_HOSTILE)
    # Its rows leave by time, its edits wait, and nothing goes over the line.
    empty = wait(lambda: not (ben := page.phone("Ben"))["points"] and ben)
    assert empty["queued"] == 2 and empty["meter"]["sent_rows"] == 0
    assert empty["meter"]["received_bytes"] == away["meter"]["received_bytes"]
    assert empty["absence"]["left_by_time"] >= len(away["points"]) > 0
    assert [job["waits"] for job in empty["jobs"]] == [True, False, False, False, True]
    ann = page.phone("Ann")
    assert ann["points"] and [job["state"] for job in ann["jobs"]] == ["open"] * 4

    page.press("Ben", "plug")
    back = wait(lambda: (ben := page.phone("Ben"))["points"] and ben["plugged"] and ben)
    assert back["queued"] == 0 and back["meter"]["sent_rows"] == 2
    assert back["meter"]["equals_store"] is True
    assert back["absence"]["received_bytes"] > 0 and back["absence"]["whole_bytes"] > 0
    jobs = wait(lambda: len(jobs := page.phone("Ann")["jobs"]) == 5 and jobs)
    assert (jobs[0]["state"], jobs[0]["editor"]) == ("on the way", "Ben")
    assert jobs[4]["title"] == _HOSTILE and not jobs[4]["waits"]


def test_only_the_own_page_presses_buttons(page: Page) -> None:
    wait(lambda: page.phone("Ann"))
    own, path = f"127.0.0.1:{page.port}", "/phones/Ann/unplug"
    kind = {"content_type": "application/json"}
    assert page.send("GET", "/", host="evil.example")[0] == 421
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
    ):
        assert page.send("POST", path, "{}", **kind, **headers)[0] == 403
    assert page.send("POST", path, "{}", content_type="text/plain")[0] == 415
    for target, body, status in (
        (path, "{", 400),
        (path, "[" * 4000, 400),
        (path, " " * 5000, 413),
        ("/phones/Eve/unplug", "{}", 400),
        ("/phones/Ann/explode", "{}", 404),
        ("/phones/Ann/advance", '{"job": "1"}', 404),
        ("/phones", "{}", 400),
    ):
        assert page.send("POST", target, body, **kind)[0] == status, target
    for target in ("/../board.py", "/nothing", "/phones/Ann/unplug"):
        assert page.send("GET", target)[0] == 404
    assert page.phone("Ann")["plugged"]
    assert page.send("POST", path, "{}", origin=f"http://{own}", **kind)[0] == 200
    wait(lambda: not page.phone("Ann")["plugged"])


@pytest.mark.long
@pytest.mark.process
def test_the_page_in_a_browser_and_a_clean_end(browser: Browser, tmp_path: Path) -> None:
    """The whole demo as a person starts it: real server, real engine, real copies."""
    command = [sys.executable, "examples/demo.py", "--page", "--no-open", "--port", "0"]
    demo = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert demo.stdout is not None
    try:
        url = next(line.split()[-1] for line in demo.stdout if "the page" in line)
        browser.open(url)
        ben = "[...document.querySelectorAll('.phone')].find(p => p.ariaLabel.startsWith('Ben'))"
        report = "document.querySelector('.account.east .report').textContent"
        browser.wait(f"{ben}?.querySelectorAll('.jobs li').length === 4")
        browser.wait("document.querySelector('.store').textContent.includes('epoch')", 120)
        browser.run(f"{ben}.querySelector('.cord').click()")
        browser.wait(f"{ben}.classList.contains('away')")
        browser.run(f"{ben}.querySelector('.jobs button').click()")
        browser.run(
            f"(() => {{ const form = {ben}.querySelector('form');"
            f" form.querySelector('input').value = {json.dumps(_HOSTILE)};"
            " form.requestSubmit(); })()"
        )
        browser.wait(f"{ben}.querySelectorAll('.jobs .waits').length === 2")
        browser.wait(f"/Away for .* [1-9]\\d* rows left by time/.test({report})", 90)
        browser.run(f"{ben}.querySelector('.cord').click()")
        browser.wait(f"/Back after .*: 2 rows sent, .* received in/.test({report})")
        ann = ben.replace("'Ben'", "'Ann'")
        browser.wait(f"{ann}.querySelectorAll('.jobs li').length === 5")
        browser.wait("document.querySelectorAll('.story .past').length === 3")
        assert browser.run("document.querySelector('img[onerror]')") is None
        assert "equal" in browser.run("document.querySelector('.account.east').textContent")
        assert browser.errors == []
    finally:
        demo.send_signal(signal.SIGINT)
        rest = demo.communicate(timeout=90)[0]
    assert demo.returncode == 0 and "folder removed" in rest
    assert list(tmp_path.glob("psoup-fleet-*")) == []
