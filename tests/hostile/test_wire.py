"""Requests to every call of the wire, drawn at random and mutated, from one tenant of a server that
another tenant uses too: each is answered or refused in time, nothing of the other's is in what
comes back, and the other's answers stay as they were."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from psoup.cli.bench.memory import resident
from psoup.v1 import psoup_pb2 as pb
from tests.hostile.mutating import mutated_bytes, mutated_text, random_message
from tests.hostile.test_texts import texts
from tests.support.server.process import ServerProcess, ipc

pytestmark = pytest.mark.process

SERVICE = pb.DESCRIPTOR.services_by_name["Psoup"]
# What the other tenant has, by which it would be known anywhere.
SECRET = "Zq7vXk2w"
_SECONDS = 10
# Codes that say that a server failed; one that it does not give itself says that it hangs.
_FAILURES = frozenset({"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DATA_LOSS", "HANGS"})
_MOST_MEMORY = 1 << 30


@dataclass
class Attacked:
    """A server, what an attacker knows of its own things there, and what the victim asks for."""

    server: ServerProcess
    words: list[Any]
    handle: bytes

    def victim_sees(self) -> list[list[Any]]:
        return self.server.of("victim").values(self.handle)

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
        try:
            came = call(request, timeout=_SECONDS)
            got = b"".join(came) if described.server_streaming else came
        except grpc.RpcError as error:
            trailer = b"".join(repr(one).encode() for one in error.trailing_metadata() or ())
            own = trailer or error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
            return error.code().name if own else "HANGS", f"{error.details()}".encode() + trailer
        return "OK", got


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder: Path = tmp_path_factory.mktemp("attacked")
    limits = ("--compute-rows", "100000", "--memory", "256MB", "--wait", "1")
    server = ServerProcess(folder / "store", *limits)
    victim, attacker = server.of("victim"), server.of("attacker")
    victim.define(f"CREATE STREAM s{SECRET} (name TEXT, a BIGINT)")
    victim.publish(f"s{SECRET}", pa.table({"name": [f"row {SECRET}"] * 3, "a": [1, 2, 3]}))
    handle = victim.register(f"SELECT name, a FROM s{SECRET} WHERE a > 1").handle
    attacker.define("CREATE STREAM s (name TEXT, a BIGINT)")
    attacker.define("CREATE STREAM k (name TEXT, a BIGINT) KEY (name)")
    attacker.define("CREATE VIEW v AS SELECT a FROM s WHERE a > 1")
    batch = ipc(pa.table({"name": ["x", "y"], "a": [1, 2]}))
    attacker.stub.Publish(pb.PublishRequest(tenant="attacker", stream="s", arrow=batch))
    own = [attacker.register(sql).handle for sql in ("SELECT a FROM s", "SELECT a FROM k")]
    asked = pb.SyncRequest(tenant="attacker", items=[pb.SyncItem(handle=one) for one in own])
    tokens = [part.end.token for part in attacker.stub.Sync(asked) if part.HasField("end")]
    known = ["attacker", "s", "k", "v", "main", "SELECT a FROM s RANGE 1 HOUR", "RANGE 1 HOUR"]
    yield Attacked(server, [*known, *texts()[:60], *own, *tokens, batch], handle)
    server.stop()


def request_of(draw: random.Random, method: str, words: list[Any]) -> Any:
    """A request of the attacker, whatever else it says."""
    message: Any = random_message(draw, SERVICE.methods_by_name[method].input_type, words)
    for asked in (message, getattr(message, "sync", None)):
        if asked is not None and "tenant" in asked.DESCRIPTOR.fields_by_name:
            asked.tenant = "attacker"
        if asked is not None and "sql" in asked.DESCRIPTOR.fields_by_name and draw.random() < 0.5:
            asked.sql = mutated_text(draw, asked.sql or "SELECT a FROM s", words[:7])
    if method == "Watch":
        message.rounds = 1
        message.sync.items.clear()
    return message


@pytest.mark.parametrize("cases", [1200, pytest.param(100_000, marks=pytest.mark.soak)])
@pytest.mark.timeout(7200)
def test_whatever_is_sent_is_answered_or_refused(attacked: Attacked, cases: int) -> None:
    before, seen = attacked.victim_sees(), Counter[str]()
    methods = [method.name for method in SERVICE.methods]
    samples = [b"\x00"]
    for number in range(cases):
        draw = random.Random(number)
        method = draw.choice(methods)
        content = request_of(draw, method, attacked.words).SerializeToString()
        if draw.random() < 0.3:
            content = mutated_bytes(draw, content, samples)
        else:
            samples = [*samples[-50:], content]
        code, got = attacked.send(method, content)
        seen[code] += 1
        assert code not in _FAILURES, (number, method, code, got[:500])
        assert SECRET.encode() not in got, (number, method, got[:500])
        assert len(got) < 1 << 20, (number, method)
    assert seen["OK"] > cases // 50 and len(seen) >= 3, seen
    assert attacked.victim_sees() == before
    assert resident(attacked.server.pid) < _MOST_MEMORY
