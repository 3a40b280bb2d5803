"""Secrets and values of rows are in no line of the log, at any level."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from client_sdk import Client, Credentials, PsoupError
from tests.server.identity.conftest import NO_RETRY, first_key
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

# Planted as a value of a row, of a parameter, and in a text of a query.
_VALUE, _PARAMETER, _LITERAL = "planted-value", "planted-parameter", "planted-literal"


def test_a_planted_secret_is_in_no_line(tmp_path: Path) -> None:
    store, token_file = tmp_path / "store", tmp_path / "metrics-token"
    key, monitor = first_key(store, "operator"), "planted-monitor-token"
    token_file.write_text(monitor)
    server = ServerProcess(
        store,
        *("--auth", "keys", "--log-level", "debug", "--log", "json", "--log-calls", "all"),
        *("--metrics", "127.0.0.1:0", "--metrics-token-file", str(token_file)),
    )
    wrong = "psk_0123456789abcdef_" + "x" * 43
    try:
        address = server.read_line().removeprefix("metrics ready on ")
        for token in (monitor, wrong):
            headers = {"Authorization": f"Bearer {token}"}
            request = urllib.request.Request(f"http://{address}/metrics", headers=headers)
            with suppress(urllib.error.HTTPError), urllib.request.urlopen(request) as response:
                response.read()
        with client(server, key) as operator:
            operator.define("CREATE STREAM s (id BIGINT, t TEXT) KEY (id)")
            operator.publish("s", [{"id": 1, "t": _VALUE}])
            operator.register("SELECT t FROM s WHERE t = :p", key="k", parameters={"p": _PARAMETER})
            assert list(operator.invoke("k")) == []
            for call in (
                lambda: list(operator.ask(f"SELECT t FROM s WHERE t = '{_LITERAL}'")),
                lambda: list(operator.ask(f"SELECT nothing FROM s WHERE t = '{_LITERAL}'")),
                lambda: operator.publish("s", [{"id": _VALUE, "t": 1}]),
                lambda: operator.publish("s", [{"id": 2, "t": _VALUE * 100}]),
            ):
                with suppress(PsoupError, ValueError):
                    call()
        for token in (wrong, key + "x", "planted.jwt.token"):
            with client(server, token) as stranger, pytest.raises(PsoupError):
                stranger.status()
    finally:
        server.stop()
    lines = [json.loads(line) for line in server.errors.read_text().splitlines()]
    calls = {line["method"] for line in lines if line["event"] == "call"}
    assert {"Publish", "Invoke", "Ask", "Status"} <= calls
    (rows, *_) = [line["rows"] for line in lines if line.get("method") == "Publish"]
    assert rows == 1
    (size, *_) = [line["bytes"] for line in lines if line.get("method") == "Publish"]
    assert size > len(_VALUE)
    assert len({(line["store"], line["server"]) for line in lines if line["store"]}) == 1
    assert len({line["server"] for line in lines}) == 1
    (computed, *_) = [line["computed"] for line in lines if line.get("method") == "Ask"]
    assert computed == 1
    assert any(line["event"] == "refused" for line in lines)
    text = json.dumps(lines)
    secret = (store / "token.key").read_bytes().hex()
    for planted in (key.rpartition("_")[2], monitor, "x" * 43, secret, _VALUE, _PARAMETER):
        assert planted not in text, planted
    assert _LITERAL not in json.dumps([line for line in lines if line["level"] != "debug"])


def client(server: ServerProcess, token: str) -> Client:
    return Client(server.address, credentials=Credentials(token=token), retry=NO_RETRY)
