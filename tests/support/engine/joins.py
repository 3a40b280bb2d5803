"""Joins whose texts differ in their windows and conditions more often than in their composites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from datastem.schema import StreamSchema
from tests.oracle.several.chance import Chance

LOCAL = ("{0}.a = 1", "{0}.a = 2", "{0}.a > 1", "{0}.b = 'a'", "{0}.b >= 'a'")
# What connects two legs, mostly equalities.
LINKS = (
    *(["{0}.a = {1}.a"] * 4),
    *(["{0}.b = {1}.b"] * 2),
    "{0}.a > {1}.a",
    "{0}.a <= {1}.a",
    "{0}.ts BETWEEN {1}.ts AND {1}.ts + INTERVAL '4' SECOND",
    "({0}.a = {1}.a OR {0}.b = {1}.b)",
    "({0}.b = {1}.b OR {0}.a < {1}.a)",
)
JOINT = ("r0.a <= r1.a", "r0.row_id < r1.row_id", "r0.ts >= r1.ts", "r0.b < r1.b")
# Of one hour, of a day and of no span; those of more than the retention are for streams without.
SHORT = ("RANGE 5 SECONDS", "RANGE 25 SECONDS", "BEGIN NOW - 20 SECONDS END NOW - 3 SECONDS")
LONG = ("RANGE 2 HOURS", "RANGE 3 DAYS", "DURING TODAY", "ROWS 3")
OUTPUTS = (
    "r0.a AS x, r1.b AS y FROM {0}",
    "r0.row_id AS x, r1.row_id AS y FROM {0}",
    "count(*) AS n, max(r1.a) AS most FROM {0}",
    "r0.b AS b, count(*) AS n FROM {0} GROUP BY r0.b",
)


@dataclass(frozen=True)
class Named:
    name: str
    schema: StreamSchema


def written_join(chance: Chance, streams: Sequence[Named]) -> str:
    """Return a join of two references to these streams, or now and then of three."""
    count = 3 if chance.one_in(5) else 2
    chosen = [chance.pick(streams) for _ in range(count)]
    has_leg_windows = chance.one_in(3)
    legs = []
    for number, stream in enumerate(chosen):
        window = f" WINDOW({_window(chance, [stream])})" if has_leg_windows else ""
        legs.append(f"{stream.name}{window} AS r{number}")
    conditions = []
    for number in range(1, count):
        before, link = chance.number(0, number - 1), chance.pick(LINKS)
        conditions.append(link.format(f"r{before}", f"r{number}"))
    for number in range(count):
        if chance.one_in(2):
            conditions.append(chance.pick(LOCAL).format(f"r{number}"))
    if chance.one_in(4):
        conditions.append(chance.pick(JOINT))
    source = f"{', '.join(legs)} WHERE {' AND '.join(conditions)}"
    window = "" if has_leg_windows or chance.one_in(3) else f" {_window(chance, chosen)}"
    refresh = " REFRESH EVERY 7 SECONDS" if chance.one_in(8) else ""
    return f"SELECT {chance.pick(OUTPUTS).format(source)}{window}{refresh}"


def _window(chance: Chance, streams: Sequence[Named]) -> str:
    """One that none of the streams refuses."""
    is_retained = all(stream.schema.retain is None for stream in streams)
    return chance.pick([*SHORT, *LONG] if is_retained else [*SHORT, "ROWS 3"])
