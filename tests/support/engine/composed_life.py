"""The life of a store whose joins the engine finds ahead of time, with the engine's own work in
pieces and its deaths between any two commits; every answer and every copy is the naive one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pyarrow as pa
from google.protobuf.timestamp_pb2 import Timestamp
from pyspark.sql import SparkSession

from datastem.instants import SECOND
from psoup.access.principal import ANYONE
from psoup.answers import Question
from psoup.answers.planning.plan import Plan
from psoup.answers.planning.question import RegisteredQuery
from psoup.engine.settings import EngineSettings
from psoup.server.calls.invoke import invoke
from psoup.store.delta.durable import MIN_GRACE_SECONDS
from psoup.v1 import psoup_pb2 as pb
from psoup.write.registrations import UnregisterOne
from querystem.language import bind_query
from tests.oracle.comparing import Values
from tests.oracle.several.chance import Seeded
from tests.oracle.several.linked_joins import written_linked_join
from tests.oracle.several.texts import our_text
from tests.server.test_several_sync_machine import SeveralRecharge
from tests.server.test_sync_machine import Standing
from tests.support.engine.joins import Named, written_join
from tests.support.engine.killing import MortalEngine
from tests.support.server.callers import new_call
from tests.support.server.process import received
from tests.support.server.several_world import Mixed, SeveralAsked
from tests.support.server.sync_world import START

KINDS = (("event", "latest"), ("arrival", "kept", "spot"))
MOST_STANDING = 8


def small_settings(dice: Random) -> EngineSettings:
    """Settings with which a few rows are many: slices, merges and all housekeeping come soon."""
    most = dice.choice([3, 1000, 1000, 1000])
    return EngineSettings(
        housekeeping=0.0,
        slice_rows=dice.choice([2, 5, 1000]),
        slice_seconds=0.0,
        merge_files=dice.choice([2, 3, 8]),
        compact_files=2,
        trim_commits=2,
        grace=MIN_GRACE_SECONDS,
        worker_bytes=dice.choice([1, 1 << 12, 2 << 20]),
        max_combinations=most,
        max_range_combinations=most,
    )


def rows_in(parts: list[pb.InvokeResponse]) -> list[Values]:
    """Return the rows of an answer that came as Arrow."""
    table = pa.ipc.open_stream(b"".join(part.arrow for part in parts)).read_all()
    return [tuple(row.values()) for row in table.to_pylist()]


class ComposedLife(SeveralRecharge):
    """Streams of one kind of time, joins of them that share composites, two servers, an engine."""

    def begin(self, seed: int, spark: SparkSession) -> None:
        dice = self.dice = Random(seed)
        self.names = dice.choice(KINDS)
        self.told: list[str] = []
        self.tally: Counter[str] = Counter()
        self.standing_now: list[Standing] = []
        self.open(seed, 0)
        self.mortal = MortalEngine(self.cores[0].store, spark, small_settings(dice), dice)

    def live(self, steps: int) -> None:
        """Raise AssertionError with what happened if an answer is wrong."""
        actions: dict[Callable[[], str], float] = {
            self.rows_come: 8,
            self.time_passes: 1,
            self.somebody_registers: 3,
            self.somebody_replaces: 1,
            self.somebody_leaves: 1,
            self.engine_works: 10,
            self.copies_sync: 3,
            self.somebody_asks: 4,
            self.server_restarts: 0.5,
        }
        try:
            self.told.append(self.somebody_registers())
            for action in self.dice.choices([*actions], [*actions.values()], k=steps):
                self.told.append(action.__name__)
                self.told[-1] = action()
            self.told.append("the end")
            self.engine_finishes()
        except Exception as problem:
            raise AssertionError("\n".join([*self.told, str(problem)])) from problem

    # ---- what happens

    def rows_come(self) -> str:
        """Publish rows, some of them late; in keyed streams updates and deletes."""
        name = self.dice.choice(self.names)
        numbers, texts = (1, 2, 3, None), ("a", "b", "ab", None)
        batch = [
            (self.dice.choice(numbers), self.dice.choice(texts), self.dice.randint(0, 20))
            for _ in range(self.dice.randint(1, 4))
        ]
        self.publish(self.dice.randrange(2), name, batch)
        self.tally["rows"] += len(batch)
        return f"publish {name} {batch}"

    def time_passes(self) -> str:
        """Let time pass, sometimes enough for rows to leave by their retention."""
        seconds = self.dice.choice([1, 5, 40, 200])
        self.wait(seconds)
        for name in {"event", "latest"} & set(self.names):
            self.heartbeat(0, name, 0)
        return f"{seconds} seconds pass"

    def somebody_registers(self) -> str:
        if len(self.standing_now) == MOST_STANDING:
            return self.somebody_leaves()
        (question,) = self._asked(self.dice.getrandbits(32))
        self.standing_now.append(self.standing_for(self.dice.randrange(2), question))
        return f"register {question.text}"

    def somebody_replaces(self) -> str:
        """Replace the text of a registration, often by one of the same composite."""
        if not self.standing_now:
            return "nobody replaces"
        (question,) = self._asked(self.dice.getrandbits(32))
        standing, server = self.dice.choice(self.standing_now), self.dice.randrange(2)
        self.run(self.cores[server].follower.catch_up())
        self.replaced(server, standing, question)
        return f"replace {standing.key} by {question.text}"

    def somebody_leaves(self) -> str:
        if not self.standing_now:
            return "nobody leaves"
        standing = self.standing_now.pop(self.dice.randrange(len(self.standing_now)))
        self.run(self.cores[0].appender.submit(UnregisterOne("main", standing.handle)))
        return f"unregister {standing.key}"

    def engine_works(self) -> str:
        return f"engine: {self.mortal.work()}"

    def server_restarts(self) -> str:
        server = self.dice.randrange(2)
        self.restart(server)
        return f"server {server} restarts"

    def write(self, seed: int) -> list[SeveralAsked | Mixed]:
        """Return one join, mostly one of those that share composites."""
        chance = Seeded(Random(seed))
        schemas = {name: self.tables[name].schema for name in self.names}
        if chance.one_in(5):
            text = our_text(written_linked_join(chance, [*schemas.values()], START, 3))
        else:
            text = written_join(chance, [Named(name, schemas[name]) for name in self.names])
        return [SeveralAsked(text, bind_query(text, schemas.get), False)]

    # ---- answers

    def copies_sync(self) -> str:
        """Sync some copies, in transfers that may be cut; check those that end."""
        if not self.standing_now:
            return "no copies"
        chosen = self.dice.sample(self.standing_now, min(3, len(self.standing_now)))
        cut, budget = self.dice.randint(0, 20), self.dice.choice([0, 0, 300])
        server = self.dice.randrange(2)
        self.run(self.cores[server].follower.catch_up())
        self.sync(server, chosen, cut, budget, True, None, False, 1)
        self.tally["synced"] += len(chosen)
        return f"sync {[standing.key for standing in chosen]}"

    def somebody_asks(self) -> str:
        """Ask all registrations now, or one as of an instant, by what was known then or today."""
        if not self.standing_now:
            return "nobody asks"
        if self.dice.random() < 0.5:
            for standing in self.standing_now:
                self.ask_now(standing)
            return "ask all"
        standing, then = self.dice.choice(self.standing_now), self.dice.random() < 0.5
        instant = self.dice.randint(START // SECOND, self.clock // SECOND) * SECOND
        self.ask_as_of(standing, instant, then)
        return f"ask {standing.key} as of {instant}"

    def ask_now(self, standing: Standing, wait: bool = False) -> pb.AnswerHeader:
        return self._ask(standing, pb.InvokeRequest(wait_for_engine=wait), None, False)

    def ask_as_of(self, standing: Standing, instant: int, then: bool) -> None:
        knowledge = pb.KNOWLEDGE_UNSPECIFIED if then else pb.KNOWLEDGE_TODAY
        at = Timestamp(seconds=instant // SECOND)
        self._ask(standing, pb.InvokeRequest(as_of=at, knowledge=knowledge), instant, then)

    def _ask(
        self, standing: Standing, request: pb.InvokeRequest, instant: int | None, then: bool
    ) -> pb.AnswerHeader:
        core, written = self.cores[self.dice.randrange(2)], self._written_of(standing)
        self.run(core.follower.catch_up())
        request.handle, request.encoding = standing.handle, pb.ENCODING_ARROW
        first, *parts = self.run(received(invoke(core, new_call(), request)))
        expected = self.history(as_of=instant, then=then).ask(written.query).answer
        written.check(expected, rows_in(parts), instant, then)
        self.tally["asked"] += 1
        self.tally["with rows"] += bool(expected)
        self.tally["by composite"] += self.plan_of(standing, 0).composite is not None
        return first.header

    def plan_of(self, standing: Standing, server: int) -> Plan:
        """Return how a server would answer a registration now."""
        core = self.cores[server]
        self.run(core.follower.catch_up())
        source = RegisteredQuery("main", standing.handle)
        question = Question(source, self._written_of(standing).query, ANYONE)
        return core.maker.plan(core.follower.view, question)

    def _written_of(self, standing: Standing) -> SeveralAsked:
        written: SeveralAsked = standing.asked.written  # type: ignore[attr-defined]
        return written

    # ---- the end

    def engine_finishes(self) -> None:
        """Assert that once the engine has finished, nothing is computed at invoke, unless a
        composite is suspended."""
        self.mortal.pump.run()
        for standing in self.standing_now:
            header = self.ask_now(standing, wait=True)
            assert header.computed_rows == 0, self._written_of(standing).text
            if self.plan_of(standing, 0).composite is not None:
                assert header.joined_pairs == 0, self._written_of(standing).text
                self.tally["finished"] += 1
            self.recharge(self.dice.randrange(2), standing)
        self.tally["deaths"] = self.mortal.deaths
