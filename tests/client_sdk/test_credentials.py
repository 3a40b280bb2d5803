"""Credentials: what a client sends, when it reads them again, and where it never sends them."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk import (
    AsyncClient,
    Client,
    ConnectionFailed,
    Copies,
    Credentials,
    PermissionDenied,
    PsoupError,
    Pull,
    Puller,
    Retry,
    Store,
    Unauthenticated,
)
from client_sdk._credentials import is_own_machine
from client_sdk._grpc.channels import error_for
from client_sdk._grpc.effects import Repeat, may_repeat
from client_sdk._session import with_port
from tests.server.identity.conftest import first_key
from tests.support.authority import Authority
from tests.support.server.process import ServerProcess

QUICK = Retry(attempts=3, first=0.01, longest=0.01)


@pytest.mark.parametrize(
    "target",
    [
        "localhost:7181",
        "127.0.0.1:1",
        "127.8.8.8",
        "[::1]:5",
        "::1",
        "unix:/run/psoup",
        "unix:x",
        "dns:///localhost:7181",
        "ipv4:127.0.0.1:80",
        "LOCALHOST",
    ],
)
def test_the_own_machine(target: str) -> None:
    assert is_own_machine(with_port(target))
    Client(target, credentials=Credentials("psk_x")).close()


@pytest.mark.parametrize(
    "target",
    [
        "store.example:7181",
        "10.0.0.1:1",
        "[2001:db8::1]:5",
        "dns:///store:1",
        "localhost.evil:1",
        "127.0.0.1.evil",
        "dns://127.0.0.1/evil:1",
        "dns://8.8.8.8/localhost:1",
        "ipv4:8.8.8.8:1",
        "xds:///localhost",
    ],
)
def test_no_token_goes_elsewhere_in_plain_text(target: str, tmp_path: Path) -> None:
    assert not is_own_machine(with_port(target))
    (tmp_path / "t").write_text("psk_x")
    for credentials in (Credentials("psk_x"), Credentials(token_file=tmp_path / "t")):
        for kind in (Client, AsyncClient):
            with pytest.raises(ValueError, match="unencrypted") as error:
                kind(target, credentials=credentials)
            assert "psk_x" not in str(error.value)
    Client(target, credentials=Credentials("psk_x", tls=True)).close()
    Client(target, credentials=Credentials("psk_x", plaintext_token=True)).close()
    Client(target).close()


def test_parts_that_do_not_fit_together() -> None:
    with pytest.raises(ValueError, match="not both"):
        Credentials("x", token_file="y")
    with pytest.raises(ValueError, match="belong together"):
        Credentials(cert="x")
    for token in ("", "a b", "a\nb", "é"):
        with pytest.raises(ValueError, match="printable ASCII"):
            Credentials(token)
    assert "secret" not in repr(Credentials("psk_secret"))


def test_a_refusal_is_not_repeated_unless_there_is_something_new_to_show() -> None:
    unknown = error_for("UNAUTHENTICATED", "", PsoupError("").detail)
    denied = error_for("PERMISSION_DENIED", "", PsoupError("").detail)
    assert isinstance(unknown, Unauthenticated) and isinstance(denied, PermissionDenied)
    for repeat in Repeat:
        assert not may_repeat(unknown, repeat) and not may_repeat(denied, repeat)
    unknown.renewed = True
    assert all(may_repeat(unknown, repeat) for repeat in Repeat)


class KeyedStore:
    """A server that asks for keys, and its operator."""

    def __init__(self, folder: Path) -> None:
        key = first_key(folder / "store", "operator", owner="main")
        self.server = ServerProcess(folder / "store", "--durability", "none")
        self.address = self.server.address
        self.operator = Client(self.address, credentials=Credentials(key))

    def key(self, owner: str = "main") -> tuple[str, str]:
        """A new key's id and secret."""
        created = self.operator.create_key(owner, roles=["administrator"])
        return created.key.id, created.secret


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedStore]:
    store = KeyedStore(tmp_path_factory.mktemp("keyed"))
    store.operator.define("CREATE STREAM s (a BIGINT)")
    yield store
    store.operator.close()
    store.server.stop()


@pytest.mark.process
def test_a_token_takes_no_way_over_a_proxy(
    store: KeyedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC would ask the proxy of the environment for localhost too, and hand it the token."""
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(0.2)
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        for name in ("http_proxy", "https_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, address)
        for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        with Client(store.address, credentials=Credentials(store.key()[1]), timeout=120) as client:
            assert client.owner() == "main"
        with contextlib.suppress(TimeoutError):
            heard.append(proxy.accept())
    assert not heard


def write(path: Path, text: str) -> None:
    """As renewals are written: a new file takes the place of the old one."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(f"{text}\n")
    fresh.replace(path)


@pytest.mark.process
def test_a_token_file_is_read_again(store: KeyedStore, tmp_path: Path) -> None:
    path = tmp_path / "token"
    old, secret = store.key()
    write(path, secret)
    credentials = Credentials(token_file=path)
    with Client(store.address, credentials=credentials, retry=QUICK) as client:
        client.publish("s", [{"a": 1}])
        store.operator.revoke_key(old)
        with pytest.raises(Unauthenticated, match="revoked") as error:
            client.publish("s", [{"a": 2}])
        assert not error.value.renewed and error.value.hint
        write(path, store.key()[1])
        client.publish("s", [{"a": 3}])
        path.unlink()
        with pytest.raises(Unauthenticated, match="can't be read"):
            client.streams()
        write(path, " ")
        with pytest.raises(Unauthenticated, match="printable ASCII"):
            client.streams()


@pytest.mark.process
async def test_a_token_that_was_renewed_meanwhile_is_shown(store: KeyedStore) -> None:
    """The function gives an old token first and a new one when it is asked again: one call."""
    (old, revoked), (_, fresh) = store.key(), store.key()
    store.operator.revoke_key(old)
    tokens: list[str] = []

    def token() -> str:
        tokens.append(revoked if not tokens else fresh)
        return tokens[-1]

    async def later() -> str:
        return token()

    with Client(store.address, credentials=Credentials(token), retry=QUICK) as client:
        client.define("CREATE STREAM renewed (a BIGINT)")
    assert tokens[:2] == [revoked, fresh]
    tokens.clear()
    credentials = Credentials(later)
    async with AsyncClient(store.address, credentials=credentials, retry=QUICK) as aio:
        answer = await aio.ask("SELECT a FROM renewed")
    assert answer.rows == [] and tokens[:2] == [revoked, fresh]
    with Client(store.address, credentials=credentials) as client, pytest.raises(TypeError):
        client.status()


@pytest.mark.process
def test_a_publisher_goes_on_with_a_renewed_token(store: KeyedStore, tmp_path: Path) -> None:
    """Its line ends in the middle, and every batch is there once."""
    path = tmp_path / "token"
    old, secret = store.key()
    write(path, secret)
    store.operator.define("CREATE STREAM many (a BIGINT)")

    def batches() -> Iterator[list[dict[str, int]]]:
        for number in range(40):
            if number == 20:
                write(path, store.key()[1])
                store.operator.revoke_key(old)
                ended = threading.Event()
                ended.wait(2.5)
            yield [{"a": number}]

    with Client(store.address, credentials=Credentials(token_file=path)) as client:
        done = client.publisher("p").publish_many("many", batches())
    assert done.batches == 40
    answer = store.operator.ask("SELECT a FROM many")
    assert [row["a"] for row in answer.rows] == list(range(40))


@pytest.mark.process
def test_copies_keep_what_waits_until_the_caller_is_known(
    store: KeyedStore, tmp_path: Path
) -> None:
    old, secret = store.key()
    token = tmp_path / "token"
    write(token, secret)
    store.operator.define("CREATE STREAM edits (a BIGINT)")
    credentials = Credentials(token_file=token)
    with (
        Copies(tmp_path / "copy.db") as copies,
        Client(store.address, credentials=credentials, retry=QUICK) as client,
    ):
        copies.keep("all", "SELECT a FROM edits")
        assert copies.sync(client).complete
        store.operator.revoke_key(old)
        copies.publish("edits", [{"a": 1}])
        with pytest.raises(Unauthenticated):
            copies.sync(client)
        assert copies.queued.batches == 1 and not copies.rejected and not copies.doubtful
        write(token, store.key()[1])
        assert copies.sync(client).complete
        assert copies.queued.batches == 0
        assert [row["a"] for row in copies["all"].rows()] == [1]


@pytest.mark.process
def test_a_watch_of_copies_goes_on_with_a_renewed_token(store: KeyedStore, tmp_path: Path) -> None:
    old, secret = store.key()
    token = tmp_path / "token"
    write(token, secret)
    store.operator.define("CREATE STREAM watched (a BIGINT)")
    with (
        Copies(tmp_path / "copy.db") as copies,
        Client(store.address, credentials=Credentials(token_file=token)) as client,
    ):
        copies.keep("all", "SELECT a FROM watched")
        rounds = copies.watch(client)
        next(rounds)
        write(token, store.key()[1])
        store.operator.revoke_key(old)
        timer = threading.Timer(2.5, lambda: store.operator.publish("watched", [{"a": 7}]))
        timer.start()
        while [row["a"] for row in copies["all"].rows()] != [7]:
            next(rounds)
        timer.join()
        rounds.close()


@pytest.mark.process
def test_a_pull_shows_its_token(store: KeyedStore, tmp_path: Path) -> None:
    path = tmp_path / "token"
    write(path, store.key("puller")[1])
    store.operator.define("CREATE STREAM pulled (a BIGINT)")
    store.operator.publish("pulled", [{"a": 5}])
    where = Store(store.address, credentials=Credentials(token_file=path))
    pull = Pull("p", tmp_path / "p.csv", sql="SELECT a FROM pulled", store=where)
    with Puller([pull]) as puller:
        (report,) = puller.once()
        assert report.ok, report.error
        assert (tmp_path / "p.csv").read_text().split() == ['"a"', "5"]
        write(path, "psk_wrong")
        (report,) = puller.once()
        assert isinstance(report.error, Unauthenticated) and not report.given_up


@pytest.mark.process
def test_a_renewed_certificate_is_shown(tmp_path: Path) -> None:
    """The connection of the old one is left when the store no longer takes it."""
    from datetime import timedelta

    authority = Authority(tmp_path / "pki")
    pair = authority.server()
    server = ServerProcess(
        tmp_path / "store",
        *("--tls-cert", str(pair.cert), "--tls-key", str(pair.key)),
        *("--tls-client-ca", str(authority.ca), "--auth", "certificates"),
    )
    try:
        pair_of_client = authority.client("bob", "acme", timedelta(seconds=4))
        credentials = Credentials(ca=authority.ca, cert=pair_of_client.cert, key=pair_of_client.key)
        with Client(server.address, credentials=credentials, retry=QUICK) as client:
            assert client.owner() == "bob"
            threading.Event().wait(4.5)
            with pytest.raises(Unauthenticated, match="expired"):
                client.status()
            authority.client("bob", "acme")
            assert client.owner() == "bob"
    finally:
        server.stop()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls_server(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    pair, folder = authority.server(), tmp_path_factory.mktemp("tls")
    options = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    server = ServerProcess(folder / "store", "--durability", "none", *options)
    yield server
    server.stop()


def test_files_of_certificates_that_are_not_there(tmp_path: Path) -> None:
    credentials = Credentials(ca=tmp_path / "none.pem")
    client = Client("localhost:1", credentials=credentials, retry=QUICK)
    with client, pytest.raises(ConnectionFailed, match=r"none\.pem can't be read"):
        client.status()
    assert os.listdir(tmp_path) == []


def test_a_pull_store_is_of_the_credentials_owner() -> None:
    assert Store().names == ("main", "main")
    assert Store(credentials=Credentials("x")).names == ("", "")
    assert Store("h", "t", credentials=Credentials("x")).names == ("t", "")


@pytest.mark.process
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_an_error_says_that_only_one_side_speaks_tls(
    host: str, store: KeyedStore, tls_server: ServerProcess, authority: Authority
) -> None:
    """`localhost` has two addresses, and gRPC reports what the one without a server did."""
    cases = [
        (store.address, Credentials(ca=authority.ca), "does not speak TLS, and this client does"),
        (tls_server.address, None, "speaks TLS, and this client does not: give Credentials"),
    ]
    for address, credentials, message in cases:
        target = f"{host}:{address.rpartition(':')[2]}"
        client = Client(target, credentials=credentials, retry=QUICK)
        with client, pytest.raises(ConnectionFailed, match=f"{target} {message}"):
            client.status()
        async with AsyncClient(target, credentials=credentials, retry=QUICK) as async_client:
            with pytest.raises(ConnectionFailed, match=f"{target} {message}"):
                await async_client.status()


@pytest.mark.process
def test_other_failures_are_not_taken_for_a_tls_mismatch(
    tls_server: ServerProcess, tmp_path: Path
) -> None:
    stranger = Credentials(ca=Authority(tmp_path).ca)
    client = Client(tls_server.address, credentials=stranger, retry=QUICK)
    with client, pytest.raises(ConnectionFailed, match="No answer .* handshake failed"):
        client.status()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        target = f"127.0.0.1:{closed.getsockname()[1]}"
    client = Client(target, retry=QUICK)
    with client, pytest.raises(ConnectionFailed, match="Connection refused"):
        client.status()
