"""Stores to look at in the console, and what tests do with its pages."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from client_sdk import Client, Credentials
from psoup.server.calls.keys import create_key
from psoup.server.identity.settings import IdentitySettings
from psoup.server.settings import Settings
from psoup.v1 import psoup_pb2 as pb
from tests.support.browser import Browser
from tests.support.server.callers import new_call
from tests.support.web import WebServer

PAGES = ("streams", "query", "registrations", "engine", "people")
# How many rows the page Query says that its answer has.
ANSWER_ROWS = (
    "Number((document.querySelector('main h2')?.textContent.match(/^(\\d+) row/) || [])[1] || 0)"
)
TEXT = "document.body.innerText"


class KeyedServer(WebServer):
    """A store that asks for access keys."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Settings(folder, port=0, identity=IdentitySettings(auth=("keys",))))

    def key(self, owner: str, *roles: str) -> str:
        """Create a key past the wire."""
        request = pb.CreateKeyRequest(owner=owner, roles=roles)
        return str(self.run(create_key(self.server.core, new_call(), request)).secret)


def fill(server: WebServer, rows: int = 600) -> datetime:
    """Create a stream with one row each ten seconds up to now."""
    server.define(
        "CREATE STREAM trades (symbol TEXT, price DOUBLE, at TIMESTAMP) ORDERED BY at RETAIN 7 DAYS"
    )
    now = datetime.now(UTC).replace(microsecond=0)
    with client(server) as session:
        batch = [
            {
                "symbol": "IBM" if place % 2 else "SAP",
                "price": float(place),
                "at": now - timedelta(seconds=10 * (rows - 1 - place)),
            }
            for place in range(rows)
        ]
        session.publish("trades", batch)
    return now


def client(server: WebServer) -> Client:
    """Return a client that shows the token of the server's own client, if there is one."""
    credentials = Credentials(token=server.token) if server.token else None
    return Client(f"127.0.0.1:{server.server.port}", credentials=credentials)


def page(server: WebServer, path: str, **query: str) -> str:
    text = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    return f"http://127.0.0.1:{server.port}/#/{path}{'?' if text else ''}{text}"


def slide(browser: Browser, label: str, share: float) -> None:
    browser.run(
        f"(() => {{ const slider = document.querySelector('input[aria-label={json.dumps(label)}]');"
        f" slider.value = String(Math.round(400 * {share}));"
        " slider.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def press(browser: Browser, label: str) -> None:
    """Press the button, link or box that begins with a text."""
    browser.wait(
        "(() => { const parts = [...document.querySelectorAll('button, a, label')];"
        " const text = part => part.innerText.trim().replace(/\\s+/g, ' ');"
        f" const part = parts.find(part => text(part).startsWith({json.dumps(label)}));"
        " part?.click(); return Boolean(part); })()"
    )


def enter(browser: Browser, selector: str, text: str) -> None:
    """Write a text into a field as a person does."""
    browser.wait(f"document.querySelector({json.dumps(selector)}) !== null")
    browser.run(
        f"(() => {{ const field = document.querySelector({json.dumps(selector)});"
        f" field.focus(); field.value = {json.dumps(text)};"
        " field.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
