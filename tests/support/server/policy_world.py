"""Worlds of machines in which row policies bind the caller: they come and go, and the caller's
claims change."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import rule

from psoup.access.principal import ClaimValue, Principal
from psoup.store import Position
from psoup.write.policies import DefinePolicy, EndPolicy
from querystem.expressions import Expression, at_instant
from querystem.language import CreatePolicy, bind_policy, bind_query, parse_statement, policy_sql
from querystem.language.normal_form.rewrite import all_of
from tests.oracle.evaluator import evaluate_row
from tests.oracle.windows import Row, Shown
from tests.support.server.callers import acting_as
from tests.support.server.several_world import SeveralWorld
from tests.support.server.sync_world import NAMES, Asked, Seen, World

T = TypeVar("T")

CONDITIONS = (
    "a >= claim('n')",
    "b = claim('t')",
    "b <> claim('t') AND a < 6",
    "a % 2 = claim('n') OR b = claim('t')",
    "claim('all') OR b IS NULL",
    "b LIKE claim('t')",
    "a BETWEEN 1 AND 7",
    "a + 1 > claim('n') AND claim('all')",
)
# Values that claims have, and how SQL writes them in the place of the claim; some don't fit.
CLAIMS: Mapping[str, Mapping[ClaimValue, str]] = {
    "n": {0: "0", 1: "1", 2: "2", "1": "NULL", None: "NULL"},
    "t": {"x": "'x'", "yy": "'yy'", "a": "'a'", "b": "'b'", 5: "NULL", None: "NULL"},
    "all": {True: "TRUE", False: "FALSE", "TRUE": "NULL", None: "NULL"},
}
claims = st.fixed_dictionaries(
    {name: st.sampled_from([*choices]) for name, choices in CLAIMS.items()}
)
conditions = st.sampled_from(CONDITIONS)
streams = st.sampled_from(NAMES)


class PolicyWorld(World):
    """A mixin before a machine: it makes all calls as one caller, bound by policies."""

    def opened(self) -> None:
        """Create policies for most streams."""
        self.made = 0
        self.policies: dict[tuple[str, str], str] = {}
        self.claims = {name: self.chance.choice([*choices]) for name, choices in CLAIMS.items()}
        for stream in self.chance.sample(NAMES, 4):
            for _ in range(self.chance.randint(1, 2)):
                self.create_policy(0, stream, self.chance.choice(CONDITIONS))

    @rule(server=st.integers(0, 1), stream=streams, condition=conditions)
    def create_policy(self, server: int, stream: str, condition: str) -> None:
        self.made += 1
        name, sql = f"p{self.made}", policy_sql(f"p{self.made}", stream, condition)
        statement = parse_statement(sql)
        assert isinstance(statement, CreatePolicy)
        bound = bind_policy(sql, statement, lambda name: self.tables[name].schema)
        stream_id = self.cores[0].follower.state.stream_names["main", stream]
        proposal = DefinePolicy("main", "main", name, stream, stream_id, condition, bound)
        self._append(server, proposal)
        self.policies[stream, name] = condition

    @rule(server=st.integers(0, 1), number=st.integers(0, 9))
    def drop_policy(self, server: int, number: int) -> None:
        names = sorted(self.policies)
        if number < len(names):
            stream, name = names[number]
            self._append(server, EndPolicy("main", "main", name, stream))
            del self.policies[stream, name]

    @rule(values=claims)
    def change_claims(self, values: dict[str, ClaimValue]) -> None:
        self.claims = values

    def _append(self, server: int, proposal: Any) -> None:
        """Append a proposal, and let every server read it."""
        self.run(self.cores[server].appender.submit(proposal))
        for core in self.cores:
            self.run(core.follower.catch_up())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        values = getattr(self, "claims", {})
        caller = Principal("main", "main", roles=frozenset({"developer"}), claims=values)
        with acting_as(caller):
            return super().run(work)

    # ---- the naive answer

    @property
    def shown(self) -> dict[str, Shown]:
        names = {stream for stream, _ in self.policies}
        return {name: self._shown(name) for name in names}

    def _shown(self, stream: str) -> Callable[[Row], bool]:
        wheres = list(self._conditions(stream))
        return lambda row: any(evaluate_row(where, row) is True for where in wheres)

    def _conditions(self, stream: str) -> Iterator[Expression]:
        """Yield the conditions of the policies of a stream, with the caller's claims."""
        for (of, _), condition in self.policies.items():
            if of == stream:
                for name, values in CLAIMS.items():
                    written = values[self.claims[name]]
                    condition = condition.replace(f"claim('{name}')", written)
                sql = f"SELECT a FROM {stream} WHERE {condition}"
                leg = bind_query(sql, lambda name: self.tables[name].schema).leg
                yield all_of([leg.where, leg.when])


_UNTIL = "ts + a * INTERVAL '3' SECOND"
MOVING = (
    "ts + (5 - a) * INTERVAL '4' SECOND < NOW",
    f"{_UNTIL} > NOW AND b = claim('t')",
    f"{_UNTIL} - NOW < INTERVAL '9' SECOND AND a >= claim('n')",
    "ts BETWEEN NOW - INTERVAL '12' SECOND AND NOW - INTERVAL '2' SECOND",
    "a < claim('n')",
)


class MovingPolicyWorld(PolicyWorld):
    """Policies that hide rows until or from an instant: of the present, whatever an answer is as
    of. Between two syncs a copy shows no row that was hidden at the first."""

    def opened(self) -> None:
        self.instants: tuple[int | None, ...] = ()
        super().opened()

    @rule(server=st.integers(0, 1), stream=streams, condition=st.sampled_from(MOVING))
    def create_moving(self, server: int, stream: str, condition: str) -> None:
        self.create_policy(server, stream, condition)

    def check(self, subject: Asked, client_copy: Seen) -> None:
        position = self.cores[0].positions.decode(client_copy.position).position
        name, clock = subject.table.schema.name, client_copy.now
        if subject.query.refresh is not None and not subject.computes:
            clock = subject.clock
        if not subject.table.by_clock:
            reached = [e.reached for at, e in self.events if at <= position and e.stream == name]
            clock = max(reached, default=None)
        self.instants = (clock,)
        super().check(subject, client_copy)

    def _naive(self, subject: Asked, position: Position, now: int | None) -> list[Any]:
        first, *_ = self.instants
        is_later = subject.table.by_clock and subject.query.refresh is None
        self.instants = (first, now) if is_later else (first,)
        return super()._naive(subject, position, now)

    def _shown(self, stream: str) -> Callable[[Row], bool]:
        wheres = list(self._conditions(stream))

        def is_shown(row: Row) -> bool:
            return all(
                any(evaluate_row(at_instant(where, instant), row) is True for where in wheres)
                for instant in self.instants
            )

        return is_shown


class SeveralPolicyWorld(PolicyWorld, SeveralWorld):
    """Over several streams."""

    def happens(self, dice: Random) -> None:
        """Let something happen, and often also to the policies or to the caller's claims."""
        super().happens(dice)
        match dice.randrange(6):
            case 0:
                self.create_policy(dice.randrange(2), dice.choice(NAMES), dice.choice(CONDITIONS))
            case 1:
                self.drop_policy(dice.randrange(2), dice.randrange(8))
            case 2 | 3:
                self.change_claims(
                    {name: dice.choice([*values]) for name, values in CLAIMS.items()}
                )
