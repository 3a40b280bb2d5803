"""Whatever happened before, a server answers as one does that keeps nothing between calls."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from datastem.instants import SECOND
from psoup.access.principal import Principal
from psoup.v1 import psoup_pb2 as pb
from tests.support.server.process import ipc
from tests.support.server.twins import Twins, twins

ADMINISTRATOR = Principal("main", "root", frozenset({"administrator"}))
# One may read all, one what is granted to its role, one what is granted to it as an owner.
READERS = (
    ADMINISTRATOR,
    Principal("main", "root", frozenset({"developer"}), {"n": 2}),
    Principal("main", "root", frozenset({"developer"}), {"n": 5}),
    Principal("main", "root", frozenset({"guest"}), {"n": 5}),
    Principal("main", "other", frozenset({"guest"})),
)
STREAMS = {
    "e": "CREATE STREAM e (a BIGINT, b TEXT, at TIMESTAMP) ORDERED BY at RETAIN 2 MINUTES",
    "c": "CREATE STREAM c (a BIGINT, b TEXT) RETAIN 1 MINUTE",
    "k": "CREATE STREAM k (a BIGINT, b TEXT, at TIMESTAMP) ORDERED BY at KEY (b)",
}
VIEWS = {"v": "CREATE VIEW v AS SELECT a, b FROM e WHERE a > 1"}
TEXTS = (
    "SELECT a, b FROM e WHERE a > 2 RANGE 30 SECONDS",
    "SELECT a FROM e WHERE b = 'x'",
    "SELECT count(*) AS n, b FROM e GROUP BY b RANGE 1 MINUTE",
    "SELECT a, b FROM c WHERE a < 6 RANGE 20 SECONDS",
    "SELECT b FROM c ROWS 4",
    "SELECT a, b FROM k WHERE a > 1",
    "SELECT e.a, k.b FROM e JOIN k ON e.b = k.b RANGE 1 MINUTE",
    "SELECT a FROM v RANGE 1 MINUTE",
    "SELECT a FROM e RANGE 1 MINUTE REFRESH EVERY 20 SECONDS",
    "SELECT a FROM e REFRESH ON c WHERE a > 7",
)
POLICIES = ("a >= claim('n')", "b = 'x' OR a > claim('n')", "a < 8")
WINDOWS = ("", "", "", "RANGE 10 SECONDS", "RANGE 3 MINUTES", "ROWS 2", "RANGE ?")


@dataclass
class Life:
    """One random life of a store, which both servers answer about."""

    pair: Twins
    chance: Random
    handles: list[bytes] = field(default_factory=list)
    policies: list[tuple[str, str]] = field(default_factory=list)
    tokens: dict[tuple[bytes, int], bytes] = field(default_factory=dict)
    answered: int = 0
    refused: int = 0

    async def live(self, steps: int) -> None:
        for sql in (*STREAMS.values(), *VIEWS.values()):
            await self._define(sql)
        for number in range(len(TEXTS)):
            await self._register(TEXTS[number], f"key {number}")
        changes = (self.publish, self.publish, self.register, self.replace, self.grant)
        rare = (self.policy, self.drop, self.unregister, self.pair.step)
        for _ in range(steps):
            change = self.chance.choice(changes if self.chance.random() < 0.8 else rare)
            await change()
            self.pair.clock[0] += self.chance.choice((0, 0, 1, SECOND, 7 * SECOND))
            for _ in range(3):
                await self.invoke()
            await self.sync()

    # ---- changes

    async def _define(self, sql: str) -> Any:
        return await self.pair.write("Define", ADMINISTRATOR, pb.DefineRequest(sql=sql))

    async def _register(self, sql: str, key: str, replace: bool = False) -> None:
        request = pb.RegisterRequest(sql=sql, client_key=key, replace=replace)
        response = await self.pair.write("Register", READERS[1], request)
        if isinstance(response, pb.RegisterResponse) and response.handle not in self.handles:
            self.handles.append(response.handle)

    async def publish(self) -> None:
        stream, count = self.chance.choice([*STREAMS]), self.chance.randint(1, 6)
        columns: dict[str, Any] = {
            "a": [self.chance.randint(0, 9) for _ in range(count)],
            "b": [self.chance.choice("xyz") for _ in range(count)],
        }
        if stream != "c":
            now = self.pair.clock[0]
            offsets = [self.chance.randint(-40, 1) * SECOND for _ in range(count)]
            instants = pa.array([now + offset for offset in offsets])
            columns["at"] = instants.cast(pa.timestamp("us", "UTC"))
        request = pb.PublishRequest(stream=stream, arrow=ipc(pa.table(columns)))
        await self.pair.write("Publish", ADMINISTRATOR, request)

    async def register(self) -> None:
        await self._register(self.chance.choice(TEXTS), f"key {self.chance.randint(0, 20)}")

    async def replace(self) -> None:
        number = self.chance.randint(0, 20)
        await self._register(self.chance.choice(TEXTS), f"key {number}", replace=True)

    async def unregister(self) -> None:
        request = pb.UnregisterRequest(handle=self.chance.choice(self.handles))
        await self.pair.write("Unregister", READERS[1], request)

    async def grant(self) -> None:
        what = self.chance.choice((*STREAMS, *VIEWS, "ALL"))
        who = self.chance.choice(("ROLE guest", "OWNER 'other'"))
        verb, to = self.chance.choice((("GRANT", "TO"), ("REVOKE", "FROM")))
        await self._define(f"{verb} read ON {what} {to} {who}")

    async def policy(self) -> None:
        if self.policies and self.chance.random() < 0.5:
            name, stream = self.policies.pop(self.chance.randrange(len(self.policies)))
            await self._define(f"DROP POLICY {name} ON {stream}")
            return
        name, stream = f"p{self.chance.getrandbits(40)}", self.chance.choice([*STREAMS])
        self.policies.append((name, stream))
        condition = self.chance.choice(POLICIES)
        await self._define(f"CREATE POLICY {name} ON {stream} USING ({condition})")

    async def drop(self) -> None:
        """Drop a stream or a view, and make it again: registrations over it stay without rows."""
        if self.chance.random() < 0.5:
            await self._define("DROP VIEW v")
        else:
            name = self.chance.choice([*STREAMS])
            await self._define(f"DROP STREAM {name} CASCADE")
            await self._define(STREAMS[name])
        await self._define(VIEWS["v"])

    # ---- questions

    async def invoke(self) -> None:
        request = pb.InvokeRequest(
            handle=self.chance.choice(self.handles),
            encoding=pb.ENCODING_ARROW,
            window=self.chance.choice(WINDOWS),
            unrefreshed=self.chance.random() < 0.2,
            latest=self.chance.random() < 0.1,
            one_message=self.chance.random() < 0.5,
        )
        if self.chance.random() < 0.2:
            offset = self.chance.randint(-90, 1) * SECOND
            request.as_of.CopyFrom(_timestamp(self.pair.clock[0] + offset))
            request.knowledge = self.chance.choice((pb.KNOWLEDGE_UNSPECIFIED, pb.KNOWLEDGE_TODAY))
        outcome = await self.pair.ask("Invoke", self.chance.choice(READERS), request)
        is_answer = isinstance(outcome[0], pb.InvokeResponse)
        self.answered += is_answer
        self.refused += not is_answer

    async def sync(self) -> None:
        handle, reader = self.chance.choice(self.handles), self.chance.randrange(len(READERS))
        token = self.tokens.get((handle, reader), b"")
        # A copy that nothing has happened to since is synced twice.
        for _ in range(2):
            item = pb.SyncItem(handle=handle, token=token)
            request = pb.SyncRequest(items=[item], encoding=pb.ENCODING_ARROW)
            *_, last = await self.pair.ask("Sync", READERS[reader], request)
            if not isinstance(last, pb.SyncPart) or not last.HasField("end"):
                return
            token = self.tokens[handle, reader] = last.end.token


def _timestamp(instant: int) -> Timestamp:
    return Timestamp(seconds=instant // SECOND, nanos=instant % SECOND * 1000)


@pytest.mark.parametrize("seed", range(2))
def test_oracle_of_kept_plans(tmp_path: Path, seed: int) -> None:
    _check(tmp_path, seed, 40)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 120))
def test_oracle_of_kept_plans_for_long(tmp_path: Path, seed: int) -> None:
    _check(tmp_path, seed, 400)


def _check(folder: Path, seed: int, steps: int) -> None:
    async def live() -> None:
        async with twins(folder) as pair:
            life = Life(pair, Random(seed))
            await life.live(steps)
            # The life must have had both, and syncs that found nothing new.
            assert life.answered > steps and life.refused and pair.quick_syncs

    asyncio.run(live())
