"""Requests to every call of the wire, drawn at random and mutated, from one tenant of a server that
another tenant uses too: each is answered or refused in time and takes little of the event loop,
nothing of the other's is in what comes back, and the other's answers stay as they were."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from benchmarks.store.memory import resident
from client_sdk import Client, Credentials
from psoup.access.keys import new_key
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.keys import append_key
from tests.hostile.metered import MeteredServer
from tests.hostile.mutating import mutated_bytes, mutated_text, random_message
from tests.hostile.test_texts import texts
from tests.support.server.process import ipc

pytestmark = pytest.mark.process

SERVICE = pb.DESCRIPTOR.services_by_name["Psoup"]
# Part of whatever the other tenant has, and that nobody else knows.
SECRET = "zq7vxk2w"
_SECONDS = 10
# Codes that say that a server failed; one that it does not give itself says that it hangs.
_FAILURES = frozenset({"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DATA_LOSS", "HANGS"})
_MOST_MEMORY = 1 << 30


@dataclass
class Attacked:
    """A server, what an attacker knows, its key, and the victim with what it asks for.

    The attacker administers a tenant of its own, and knows names and a handle of the victim's.
    """

    server: MeteredServer
    words: list[Any]
    key: str
    victim: Client
    handle: bytes

    def victim_sees(self) -> list[dict[str, Any]]:
        return self.victim.invoke(self.handle).rows

    def send(self, method: str, content: bytes) -> tuple[str, bytes]:
        """The code of a call with a request of these bytes, and all that came back."""
        described = SERVICE.methods_by_name[method]
        path = f"/{SERVICE.full_name}/{method}"
        kinds: dict[tuple[bool, bool], Any] = {
            (False, False): self.server.channel.unary_unary,
            (False, True): self.server.channel.unary_stream,
            (True, True): self.server.channel.stream_stream,
        }
        call = kinds[described.client_streaming, described.server_streaming](path)
        request = iter([content]) if described.client_streaming else content
        metadata = (("authorization", f"Bearer {self.key}"),)
        try:
            came = call(request, timeout=_SECONDS, metadata=metadata)
            got = b"".join(came) if described.server_streaming else came
        except grpc.RpcError as error:
            trailer = b"".join(repr(item).encode() for item in error.trailing_metadata() or ())
            is_answered = trailer or error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
            return (
                error.code().name if is_answered else "HANGS",
                f"{error.details()}".encode() + trailer,
            )
        return "OK", got


def made_key(store: Store, tenant: str) -> str:
    """A key of an administrator of a tenant."""
    key, text = new_key(tenant, "ann", ("administrator",), "", 1)
    append_key(store, key)
    return text


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder: Path = tmp_path_factory.mktemp("attacked")
    store = Store.open(folder / "store", create=True, sync=False)
    keys = {tenant: made_key(store, tenant) for tenant in ("victim", "attacker")}
    limits = ("--compute-rows", "100000", "--memory", "256MB", "--wait", "1")
    options = *limits, "--auth", "keys", "--durability", "none"
    server = MeteredServer(folder / "store", *options, token=keys["attacker"])
    victim, attacker = (
        Client(server.address, credentials=Credentials(token=key)) for key in keys.values()
    )
    victim.define(f"CREATE STREAM orders (name TEXT, c{SECRET} BIGINT)")
    rows = [{"name": f"row {SECRET}", f"c{SECRET}": number} for number in range(3)]
    victim.publish("orders", rows)
    handle = victim.register(f"SELECT * FROM orders WHERE c{SECRET} > 0").handle
    for sql in (
        "CREATE STREAM s (name TEXT, a BIGINT)",
        "CREATE STREAM k (name TEXT, a BIGINT) KEY (name)",
        "CREATE VIEW v AS SELECT a FROM s WHERE a > 1",
    ):
        attacker.define(sql)
    batch = ipc(pa.table({"name": ["x", "y"], "a": [1, 2]}))
    attacker.publish("s", [{"name": "x", "a": 1}])
    handles = [attacker.register(sql).handle for sql in ("SELECT a FROM s", "SELECT a FROM k")]
    names = ["attacker", "s", "k", "v", "orders", "SELECT a FROM s RANGE 1 HOUR", "RANGE 1 HOUR"]
    foreign_names = ["victim", "ann", "SELECT * FROM orders", "GRANT read ON ALL TO OWNER 'ann'"]
    words = [*names, *foreign_names, *texts()[:60], *handles, handle, batch]
    with victim, attacker:
        yield Attacked(server, words, keys["attacker"], victim, handle)
    server.stop()


def request_of(draw: random.Random, method: str, words: list[Any]) -> Any:
    """A request whose tenant is left out as a rule, and whose text may be any."""
    message: Any = random_message(draw, SERVICE.methods_by_name[method].input_type, words)
    for part in (message, getattr(message, "sync", None)):
        if part is not None and "tenant" in part.DESCRIPTOR.fields_by_name:
            part.tenant = draw.choice(["", "", "", "victim", part.tenant])
        if part is not None and "sql" in part.DESCRIPTOR.fields_by_name and draw.random() < 0.5:
            part.sql = mutated_text(draw, part.sql or "SELECT a FROM s", words[:11])
    if method == "Watch":
        message.rounds = 1
        message.sync.items.clear()
    return message


@pytest.mark.parametrize("cases", [1200, pytest.param(100_000, marks=pytest.mark.soak)])
@pytest.mark.timeout(7200)
def test_whatever_is_sent_is_answered_or_refused(attacked: Attacked, cases: int) -> None:
    before, statuses = attacked.victim_sees(), Counter[str]()
    # Its own key may not be revoked by the attacker.
    methods = [method.name for method in SERVICE.methods if method.name != "RevokeKey"]
    samples = [b"\x00"]
    for number in range(cases):
        draw = random.Random(number)
        method = draw.choice(methods)
        content = request_of(draw, method, attacked.words).SerializeToString()
        if draw.random() < 0.3:
            content = mutated_bytes(draw, content, samples)
        else:
            samples = [*samples[-50:], content]
        send = partial(attacked.send, method, content)
        code, got = attacked.server.sent((number, method), send)
        statuses[code] += 1
        assert code not in _FAILURES, (number, method, code, got[:500])
        assert SECRET.encode() not in got, (number, method, got[:500])
        assert len(got) < 1 << 20, (number, method)
    assert statuses["OK"] > cases // 50 and len(statuses) >= 3, statuses
    assert attacked.victim_sees() == before
    assert resident(attacked.server.pid) < _MOST_MEMORY
