"""Refused credentials and calls leave a trace, whose size an attack does not decide."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import grpc
import pytest

from psoup.access.keys import new_key
from psoup.access.principal import Principal
from psoup.errors import AdministrationDenied, PermissionDenied, StorageFailed, Unauthenticated
from psoup.server.main import Server
from psoup.server.security_events import SecurityEvents
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.store.audit import records_of
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from psoup.write.denials import Denial, NoteDenials
from psoup.write.keys import append_key
from tests.support.server.callers import NamedCaller, open_server


class Call:
    """The context of a call, as far as security events look at it."""

    def __init__(self, peer: str, token: str = "") -> None:
        self._peer = peer
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    def peer(self) -> str:
        return self._peer

    def invocation_metadata(self) -> Any:
        return self._metadata

    def auth_context(self) -> dict[str, Any]:
        return {}


class Kept:
    """What security events submit; it fails while `failing`."""

    def __init__(self) -> None:
        self.denials: list[tuple[Denial, int]] = []
        self.failing = False

    async def submit(self, proposal: NoteDenials) -> None:
        if self.failing:
            raise StorageFailed("the disk is gone")
        self.denials += proposal.denials


async def denied(
    events: SecurityEvents, caller: Principal, error: Exception, peer: str = "ipv4:10.0.0.1:5000"
) -> None:
    call: Any = Call(peer)
    events.note(call, caller, "/psoup.v1.Psoup/CreateKey", error)


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records if record.name == "psoup.security"]
    caplog.clear()
    return lines


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "psoup.security")


async def test_a_million_refusals_are_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    events = SecurityEvents(Kept().submit)
    refused = Unauthenticated("the access key is unknown to this store, or was revoked")
    for number in range(5000):
        peer = f"ipv4:10.0.{number % 2}.1:{number}"
        events.note(Call(peer, "psk_bad"), None, "Ask", refused)  # type: ignore[arg-type]
    first = lines_of(caplog)
    assert len(first) == 2 and "ipv4:10.0.0.1:0 with a token" in first[0]
    await events.flush()
    assert [line.split(" from ")[0] for line in lines_of(caplog)] == [
        "refused 2499 more calls",
        "refused 2499 more calls",
    ]
    await events.flush()
    assert lines_of(caplog) == []


async def test_what_is_kept_and_written_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    store = Kept()
    events = SecurityEvents(store.submit)
    error = AdministrationDenied("no role or grant of yours allows administer on ALL")
    for number in range(20_000):
        caller = Principal("shop", "eve", credential=f"jwt {number}")
        await denied(events, caller, error, f"ipv4:10.{number >> 8}.{number & 255}.1:1")
    assert len(events._refusals) <= 1000 and len(events._denials) <= 101
    await events.flush()
    lines = lines_of(caplog)
    assert len(lines) == 201 and lines[-1] == "refused 19800 more calls from others"
    assert len(store.denials) == 101 and sum(count for _, count in store.denials) == 20_000


async def test_lines_can_t_be_forged(caplog: pytest.LogCaptureFixture) -> None:
    events = SecurityEvents(Kept().submit)
    call: Any = Call("unix:/tmp/a\nrefused nobody:1")
    events.note(call, None, "Ask", PermissionDenied("not\r\nthat \x1b[2J"))
    (line,) = lines_of(caplog)
    assert line.isprintable() and "\\x1b" in line


async def test_other_errors_are_no_security_events(caplog: pytest.LogCaptureFixture) -> None:
    store = Kept()
    events = SecurityEvents(store.submit)
    await denied(events, Principal("shop", "eve"), StorageFailed("full"))
    await denied(events, Principal("shop", "eve"), PermissionDenied("no role allows read on s"))
    await events.flush()
    assert len(lines_of(caplog)) == 1 and not store.denials


async def test_denials_wait_for_a_store_that_can_take_them() -> None:
    store = Kept()
    events, eve = SecurityEvents(store.submit), Principal("shop", "eve", credential="key 1")
    error = AdministrationDenied("you may not")
    await denied(events, eve, error)
    store.failing = True
    await events.flush()
    await denied(events, eve, error)
    store.failing = False
    await events.flush()
    assert store.denials == [(Denial("shop", "eve", "key 1", "you may not"), 2)]


async def test_denials_of_administration_are_in_the_audit(tmp_path: Path) -> None:
    async with open_server(tmp_path / "store") as (server, stub):
        boss = NamedCaller(stub, "shop", "boss", ("administrator",))
        eve = NamedCaller(stub, "shop", "eve", ("reader",))
        await boss.define("CREATE STREAM orders (a BIGINT)")
        attempts: list[tuple[str, Any]] = [
            ("CreateKey", pb.CreateKeyRequest(owner="eve", roles=["administrator"])),
            ("CreateKey", pb.CreateKeyRequest(owner="eve", roles=["operator"])),
            ("Audit", pb.AuditRequest()),
            ("Define", pb.DefineRequest(sql="GRANT administer ON ALL TO OWNER eve")),
            ("ListStreams", pb.ListStreamsRequest(tenant="bank")),
            ("Register", pb.RegisterRequest(owner="boss", sql="SELECT a FROM orders")),
            ("Clock", pb.ClockRequest(confirm=[1])),
            ("Zones", pb.ZonesRequest(renew=["Europe/Madrid"])),
            ("Publish", pb.PublishRequest(stream="orders", rows=pb.Rows())),
        ]
        for rpc, request in attempts:
            with pytest.raises(grpc.aio.AioRpcError) as problem:
                await eve.call(rpc, request)
            assert problem.value.code() is grpc.StatusCode.PERMISSION_DENIED, rpc
        with pytest.raises(grpc.aio.AioRpcError):
            await boss.call("CreateKey", pb.CreateKeyRequest(owner="x", roles=["operator"]))
        await server.core.security.flush()
        audit = await boss.only("Audit", pb.AuditRequest())
        denials = {
            (record.actor, record.detail) for record in audit.records if record.action == "deny"
        }
        assert denials == {
            ("eve", "4 times: no role or grant of yours allows administer on ALL"),
            ("eve", "you may not act for another tenant"),
            ("eve", "you may not act for another owner"),
            ("eve", "you may not confirm jumps of the store's time"),
            ("eve", "you may not renew the rules of time zones"),
            ("boss", "you may not make a key with the role operator"),
        }


async def test_a_real_attack_on_a_server_with_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last window is noted when the server stops, so that a restart hides nothing."""
    store = Store.open(tmp_path / "store", create=True, sync=False)
    reader, text = new_key("shop", "eve", ("reader",), "", 1)
    append_key(store, reader)
    server = Server(Settings(tmp_path / "store", durability="none"))
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub: Any = PsoupStub(channel)
        wrong = f"psk_{reader.id}_{'x' * 43}"
        for token in ("", wrong, wrong, "nonsense", text):
            metadata = (("authorization", f"Bearer {token}"),) if token else ()
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.ListKeys(pb.ListKeysRequest(), metadata=metadata)
    await server.stop()
    lines = lines_of(caplog)
    assert [line.split(": ")[0].split(" with ")[1] for line in lines] == [
        "no credential",
        f"key {reader.id}",
        "a token",
        f"key {reader.id}",
        f"key {reader.id}",
    ]
    assert all("127.0.0.1" in line for line in lines)
    assert not any(secret in line for line in lines for secret in (text, wrong, "nonsense"))
    version = store.log.latest_version()
    entries = store.log.read(version)
    records = [
        record for entry in entries for record in records_of(store.state(_epoch(store)), entry)
    ]
    assert [(record.tenant, record.owner, record.action, record.object) for record in records] == [
        ("shop", "eve", "deny", f"key {reader.id}")
    ]


def _epoch(store: Store) -> Any:
    return store.epochs.latest()[1]
