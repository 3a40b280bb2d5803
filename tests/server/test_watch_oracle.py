"""Whoever is not woken has nothing to learn: after every event, for random queries of all kinds."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from google.protobuf.duration_pb2 import Duration

from psoup.server.calls.register import register
from psoup.server.calls.sync import SyncCall
from psoup.server.calls.waiting import Deadline
from psoup.server.calls.watch import Watcher
from psoup.v1 import psoup_pb2 as pb
from psoup.write.registrations import UnregisterOne
from psoup.write.streams import Drop
from tests.oracle.copy import Copy
from tests.server.test_now_machine import INTERVALS
from tests.support.lengths import short_first
from tests.support.server.callers import new_call
from tests.support.server.several_world import SeveralAsked, SeveralWorld
from tests.support.server.sync_world import (
    CONDITIONS,
    NAMES,
    REFRESHES,
    SELECTS,
    WINDOWS,
    Question,
)

_SINGLE, _SEVERAL = 10, 2


@dataclass
class Slept:
    """How often an item was looked at after an event that did not wake it, or that did."""

    through: int = 0
    woken: int = 0


@dataclass
class WatchWorld:
    """A Watch over random queries, on the first of two servers."""

    seed: int
    slept: Slept = field(default_factory=Slept)

    def __post_init__(self) -> None:
        self.dice = Random(self.seed)
        self.world = SeveralWorld()
        self.world.open(self.seed, self.dice.randint(0, 2))
        self.core = self.world.cores[0]
        self.texts: list[str] = []
        items = [self._item(text, window) for text, window in self._questions()]
        self.copies = [Copy() for _ in items]
        self.away = Duration(seconds=5) if self.dice.random() < 0.3 else None
        at_one_position = self.dice.random() < 0.2
        request = pb.SyncRequest(items=items, away=self.away, one_position=at_one_position)
        self.watcher = self.world.run(self._watcher(request))

    async def _watcher(self, request: pb.SyncRequest) -> Watcher:
        return Watcher(self.core, new_call(), request).__enter__()

    def close(self) -> None:
        self.world.run(self._leave())
        self.world.teardown()

    async def _leave(self) -> None:
        self.watcher.__exit__()
        assert not len(self.core.watches)
        await self.core.watches.settled()
        self.core.watches._check()

    # ---- queries

    def _questions(self) -> list[tuple[str, str]]:
        draw, texts = self.dice.choice, list[tuple[str, str]]()
        for _ in range(_SINGLE):
            name, select, where, window = map(draw, (NAMES, SELECTS, CONDITIONS, WINDOWS))
            override, refresh = draw(("", "", *WINDOWS)), draw(REFRESHES)
            if self.dice.random() < 0.3:
                where = f"({where}) AND {draw(INTERVALS)}"
            question = Question(name, select, where, window, override, False, refresh)
            question_ = self.world.ask(question)
            texts.append((question_.text, question_.window))
        for _ in range(_SEVERAL):
            written = self.world.write(self.dice.getrandbits(32))
            texts += [(case.text, "") for case in written if isinstance(case, SeveralAsked)]
        return texts

    def _item(self, text: str, window: str) -> pb.SyncItem:
        request = pb.RegisterRequest(sql=text, client_key=f"k{len(self.texts)}")
        registered, *_ = self.world.run(register(self.world.cores[1], new_call(), request))
        self.texts.append(f"{text} | {window}")
        changes = self.dice.random() < 0.3
        base = self.dice.random() < 0.2 and len(self.texts) <= _SINGLE
        return pb.SyncItem(
            handle=registered.handles[0], window=window, base_rows=base, changes=changes
        )

    # ---- what happens

    def happens(self) -> None:
        """An event of any kind on either server; servers that restart are those not watched."""
        dice, world = self.dice, self.world
        match dice.randrange(14):
            case 0:
                world.step()
            case 1:
                world.restart(1)
            case 2 | 3:
                world.wait(dice.choice((0, 1, 3, 8, 40)))
            case 4:
                self._replace()
            case 5:
                world.heartbeat(dice.randrange(2), dice.choice(("event", "latest")), 3)
            case 6:
                world.run(self.core.follower.refresh())
            case 7 if dice.random() < 0.3:
                self._unregister()
            case _:
                rows = [
                    (dice.choice((1, 2, 3, 6, 9, None)), dice.choice("xy"), dice.randint(0, 20))
                    for _ in range(dice.randint(1, 4))
                ]
                world.publish(dice.randrange(2), dice.choice(NAMES), rows)

    def _replace(self) -> None:
        index = self.dice.choice([*self.watcher.items])
        text, _ = self.dice.choice(self._questions())
        request = pb.RegisterRequest(sql=text, client_key=f"k{index}", replace=True)
        self.world.run(register(self.world.cores[1], new_call(), request))
        self.texts[index] = f"{text} | {self.watcher.items[index].item.window}"

    def _unregister(self) -> None:
        index = self.dice.choice([*self.watcher.items])
        proposal = UnregisterOne("main", self.watcher.items[index].item.handle)
        self.world.run(self.world.cores[1].appender.submit(proposal))

    def drop(self, name: str) -> None:
        self.world.run(self.world.cores[1].appender.submit(Drop("main", "main", name)))

    # ---- checks

    def look(self) -> None:
        """Whoever was not woken is told nothing by a Sync."""
        self.world.run(self._settle())
        for index in self.watcher.items:
            if index in self.watcher._due:
                self.slept.woken += 1
                continue
            self.slept.through += 1
            differences = self.world.run(self._told(index))
            assert not differences, (self.seed, self.texts[index], differences)

    async def _settle(self) -> None:
        await self.core.follower.catch_up()
        await self.core.watches.settled()
        self.core.watches._wake_due()
        self.core.watches._check()

    async def _told(self, index: int) -> list[pb.SyncPart]:
        """The parts that tell a client something, if any does."""
        request = pb.SyncRequest(items=[self.watcher.items[index].item], away=self.away)
        call = SyncCall(self.core, new_call(), request)
        parts = [part async for part in call.parts(Deadline.within(1))]
        transfer = call.transfers.get(0)
        quiet = transfer is not None and (transfer.quiet or self._is_ahead(parts))
        return [] if quiet else parts

    def _is_ahead(self, parts: list[pb.SyncPart]) -> bool:
        """Tells whether parts bring only rows that enter later: with time more are sent ahead to
        who may be away for so long."""
        kinds = {part.WhichOneof("part") for part in parts}
        rows = [row for part in parts for row in part.rows.rows]
        later = all(row.visible_from > self.world.clock for row in rows)
        return self.away is not None and kinds == {"begin", "rows", "end"} and later

    def go_on(self) -> None:
        """A round, which brings the copies to the present."""
        self.world.run(self._round())

    async def _round(self) -> None:
        while self.watcher._due:
            async for part in self.watcher.round():
                # A query may be replaced by one that can't be asked for in this way.
                if not part.HasField("refused"):
                    self.copies[part.item].take(part)


@pytest.mark.parametrize("seed", short_first(range(3)))
def test_oracle_whoever_sleeps_misses_nothing(seed: int) -> None:
    watched(seed, 30)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 400))
def test_oracle_whoever_sleeps_misses_nothing_for_long(seed: int) -> None:
    watched(seed, 100)


def watched(seed: int, events: int) -> None:
    world = WatchWorld(seed)
    try:
        world.go_on()
        for _ in range(events):
            world.happens()
            world.look()
            if world.dice.random() < 0.8:
                world.go_on()
        assert world.slept.through > world.slept.woken / 4
        for name in NAMES[:2]:
            world.drop(name)
            world.look()
    finally:
        world.close()
