"""Random lives of a store in which keys are erased: publishes, erasures, answers now and in the
past, copies that sync in pieces, epochs, merges and restarts. A naive model says what is right."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from tests.oracle.copy import Copy
from tests.support.lengths import short_first
from tests.support.server.callers import NamedCaller, TenantServer, tenant_server
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import detail

PEOPLE = "CREATE STREAM people (id BIGINT, name TEXT, v BIGINT) KEY (id)"
ORDERS = "CREATE STREAM orders (person BIGINT, v BIGINT)"
TEXTS = {
    "rows": "SELECT id, name, v FROM people",
    "some": "SELECT id FROM people WHERE v > 4",
    "groups": "SELECT name, COUNT(*) AS n, SUM(v) AS s FROM people GROUP BY name",
    "distinct": "SELECT DISTINCT name FROM people",
    "orders": "SELECT person, v FROM orders",
    "large": "SELECT SUM(v) AS s, COUNT(*) AS n FROM orders WHERE v > 4",
    "newest": "SELECT person, v FROM orders ROWS 3",
    "join": "SELECT o.v, p.name FROM orders o JOIN people p ON o.person = p.id",
}
IDS, NAMES = range(6), ("a", "b", "c")


@dataclass
class Model:
    """All rows that were accepted and not erased, in order, each with the step it came in."""

    people: list[tuple[int, int, str, int]] = field(default_factory=list)
    orders: list[tuple[int, int, int]] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)

    def current(self, step: int) -> list[tuple[int, str, int]]:
        rows = {key: (key, name, v) for at, key, name, v in self.people if at <= step}
        return list(rows.values())

    def answer(self, name: str, step: int = 10**9) -> list[tuple[Any, ...]]:
        people = self.current(step)
        orders = [(person, v) for at, person, v in self.orders if at <= step]
        match name:
            case "rows":
                return [*people]
            case "some":
                return [(key,) for key, _, v in people if v > 4]
            case "groups":
                groups = {row[1]: [r[2] for r in people if r[1] == row[1]] for row in people}
                return [(group, len(vs), sum(vs)) for group, vs in groups.items()]
            case "distinct":
                return [(value,) for value in {row[1] for row in people}]
            case "orders":
                return [*orders]
            case "large":
                large = [v for _, v in orders if v > 4]
                return [(sum(large) if large else None, len(large))]
            case "newest":
                return orders[-3:]
            case _:
                return [(v, row[1]) for person, v in orders for row in people if row[0] == person]


class Life:
    def __init__(self, path: Path, seed: int) -> None:
        self.path = path / "store"
        self.dice = random.Random(seed)
        self.model = Model()
        self.step = 0
        self.instants: list[tuple[int, int]] = []
        self.copies: dict[tuple[str, bool], Copy] = {}
        self.handles: dict[str, bytes] = {}
        self.told: list[str] = []
        self.tally: Counter[str] = Counter()

    async def begin(self) -> None:
        self._stack = AsyncExitStack()
        self.server: TenantServer = await self._stack.enter_async_context(tenant_server(self.path))
        self.boss: NamedCaller = self.server.administrator

    async def prepare(self) -> None:
        await self.begin()
        await self.boss.define(PEOPLE)
        await self.boss.define(ORDERS)
        for name, text in TEXTS.items():
            self.handles[name] = await self.boss.register(text)
            for changes in (False, True):
                self.copies[name, changes] = Copy()
        self.engine = HandMadeEngine(Store.open(self.path, sync=False))

    async def end(self) -> None:
        await self._stack.aclose()

    async def restart(self) -> None:
        await self.end()
        await self.begin()

    async def publish(self) -> None:
        self.step += 1
        count = self.dice.randint(1, 3)
        if self.dice.random() < 0.6:
            keys = [self.dice.choice(IDS) for _ in range(count)]
            rows = [(key, self.dice.choice(NAMES), self.dice.randint(0, 9)) for key in keys]
            try:
                ids, names, values = map(list, zip(*rows, strict=True))
                await self.boss.publish("people", id=ids, name=names, v=values)
            except grpc.aio.AioRpcError as error:
                assert detail(error).reason == "ERASED" and self.model.refused & set(keys)
                self.tally["refused"] += 1
                return
            assert not self.model.refused & set(keys)
            self.model.people += [(self.step, *row) for row in rows]
        else:
            orders = [(self.dice.choice(IDS), self.dice.randint(0, 9)) for _ in range(count)]
            persons, values = map(list, zip(*orders, strict=True))
            await self.boss.publish("orders", person=persons, v=values)
            self.model.orders += [(self.step, *order) for order in orders]
        self.instants.append((self.server.core.follower.state.clock, self.step))

    async def erase(self) -> None:
        key, model = self.dice.choice(IDS), self.model
        if self.dice.random() < 0.5 and len(model.refused) < len(IDS) - 2:
            await self.boss.define(f"ERASE FROM people WHERE id = {key}")
            model.people = [row for row in model.people if row[1] != key]
            model.refused.add(key)
        else:
            await self.boss.define(f"ERASE FROM orders WHERE person = {key}")
            model.orders = [row for row in model.orders if row[1] != key]
        self.tally["erased"] += 1

    async def ask(self) -> None:
        for name, handle in self.handles.items():
            _, rows = await self.boss.invoke(handle)
            self.compare(name, rows, self.model.answer(name))

    async def ask_the_past(self) -> None:
        if not self.instants:
            return
        instant, step = self.dice.choice(self.instants)
        # The last of the steps with that stamp.
        step = max(at for stamp, at in self.instants if stamp == instant)
        as_of = Timestamp()
        as_of.FromMicroseconds(instant)
        for name in ("rows", "groups", "orders", "newest", "join"):
            _, rows = await self.boss.invoke(self.handles[name], as_of=as_of)
            self.compare(f"{name} of the past", rows, self.model.answer(name, step))
        self.tally["past"] += 1

    async def sync(self) -> None:
        for (name, changes), copy in self.dice.sample([*self.copies.items()], 6):
            # A transfer that is resumed ends at the position it was begun with.
            cut, is_resumed = self.dice.random() < 0.3, bool(copy.resume)
            item = pb.SyncItem(
                handle=self.handles[name], token=copy.resume or copy.token, changes=changes
            )
            request = pb.SyncRequest(items=[item], byte_budget=1 if cut else 0)
            parts = await self.boss.call("Sync", request)
            for part in parts:
                copy.take(part)
            if parts[-1].HasField("end"):
                assert copy.sound() and not copy.damaged(), name
                rows = [row.values for row in copy.rows.values()]
                if not is_resumed:
                    self.compare(f"copy of {name}", rows, self.model.answer(name))
                self.tally[f"reason {parts[0].begin.reason}"] += 1

    async def step_engine(self) -> None:
        self.engine.step()
        if self.dice.random() < 0.5:
            for stream_id, stream in self.engine.state.streams.items():
                if stream.high:
                    self.engine.rewrite(stream_id)
        await self.server.core.follower.refresh()

    def compare(self, name: str, rows: list[Any], expected: list[tuple[Any, ...]]) -> None:
        values = [row if isinstance(row, tuple) else (row,) for row in rows]
        assert Counter(values) == Counter(expected), (name, self.told)


@pytest.mark.parametrize("seed", short_first(range(30), 3))
async def test_lives_with_erasures(seed: int, tmp_path: Path) -> None:
    life = Life(tmp_path, seed)
    await life.prepare()
    actions = {
        life.publish: 10,
        life.erase: 3,
        life.ask: 4,
        life.ask_the_past: 2,
        life.sync: 5,
        life.step_engine: 2,
        life.restart: 1,
    }
    for action in life.dice.choices([*actions], [*actions.values()], k=60):
        life.told.append(action.__name__)
        await action()
    await life.ask()
    await life.end()
    assert life.tally["erased"] and life.tally["past"]
