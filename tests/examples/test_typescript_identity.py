"""The TypeScript client and a store that asks who calls: TLS both ways, a token that is renewed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from client_sdk import Client, Credentials
from tests.examples.typescript import Driver, Refused, assert_same
from tests.server.identity.conftest import first_key
from tests.support.authority import Authority
from tests.support.server.process import ServerProcess

pytestmark = [pytest.mark.long, pytest.mark.process]


@dataclass
class Asking:
    """A server with TLS both ways that asks for keys, and its operator."""

    server: ServerProcess
    operator: Client
    authority: Authority
    tls: list[object]


@pytest.fixture
def asking(target: Path, tmp_path: Path) -> Iterator[Asking]:
    authority = Authority(tmp_path / "pki")
    operator = first_key(tmp_path / "store", "operator", owner="main")
    pair, client_pair = authority.server(), authority.client("device")
    server = ServerProcess(
        tmp_path / "store",
        *("--tls-cert", str(pair.cert), "--tls-key", str(pair.key)),
        *("--tls-client-ca", str(authority.ca), "--auth", "keys"),
    )
    credentials = Credentials(operator, ca=authority.ca, cert=client_pair.cert, key=client_pair.key)
    tls: list[object] = [
        "--tls-ca",
        authority.ca,
        "--tls-cert",
        client_pair.cert,
        "--tls-key",
        client_pair.key,
    ]
    with Client(server.address, credentials=credentials) as client:
        yield Asking(server, client, authority, tls)
    server.stop()


def test_a_copy_of_a_store_that_asks_who_calls(
    asking: Asking, driver: Driver, tmp_path: Path
) -> None:
    path, token = tmp_path / "copy.jsonl", tmp_path / "token"
    client = asking.operator
    client.define("CREATE STREAM m (a BIGINT)")
    first = client.create_key("main", roles=["administrator"])
    token.write_text(first.secret)
    options = [*asking.tls, "--token-file", token]
    start = ["register", path, "SELECT a FROM m", "--address", asking.server.address, "--key", "k"]
    with pytest.raises(Refused, match="asks who calls"):
        driver.run(*start, *asking.tls)
    driver.run(*start, *options)
    (registered,) = client.registrations()
    client.publish("m", [{"a": 1}])
    assert_same(driver.rows_after("sync", path, *options), client, registered.handle)
    (tmp_path / "rows.jsonl").write_text('{"a": "2"}\n')
    address = ["--address", asking.server.address]
    driver.run("publish", "m", tmp_path / "rows.jsonl", *address, *options)
    assert (
        len(assert_same(driver.rows_after("sync", path, *options), client, registered.handle).rows)
        == 2
    )

    fresh = client.create_key("main", roles=["administrator"])

    def renew() -> None:
        token.write_text(fresh.secret)
        client.revoke_key(first.key.id)
        threading.Event().wait(2.5)
        client.publish("m", [{"a": 3}])

    renewal = threading.Timer(0.5, renew)
    renewal.start()
    lines = driver.run("watch", path, "--rounds", "2", *options)
    renewal.join()
    assert lines[-2:][0] == "3", lines
    token.write_text(first.secret)
    with pytest.raises(Refused, match="revoked"):
        driver.run("sync", path, *options)


def test_a_store_it_does_not_know_gets_no_token(
    asking: Asking, driver: Driver, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("psk_x")
    start = ["register", tmp_path / "c.jsonl", "SELECT 1 AS a", "--token-file", token]
    with pytest.raises(Refused, match="unencrypted"):
        driver.run(*start, "--address", "store.example:7181")
    stranger = Authority(tmp_path / "stranger")
    with pytest.raises(Refused):
        driver.run(*start, "--address", asking.server.address, "--tls-ca", stranger.ca)
