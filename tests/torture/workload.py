"""The streams of a life, rows for them, and queries over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from datastem.schema import OP, StreamSchema
from querystem.language import CreateStream, parse_statement
from tests.oracle.comparing import Values
from tests.support.system.question import Question

Row = dict[str, Any]

DEFINITIONS = {
    "plain": "CREATE STREAM plain (who TEXT, n BIGINT, x DOUBLE) RETAIN 12 HOURS",
    "timed": "CREATE STREAM timed (who TEXT, n BIGINT, x DOUBLE, at TIMESTAMP) "
    "ORDERED BY at RETAIN 1 HOUR",
    "places": "CREATE STREAM places (place TEXT, n BIGINT, x DOUBLE) KEY (place)",
}
_PLACES = 40
_JOIN_SHARE = 0.2
_JOIN_WINDOWS = ("", "RANGE 20 SECONDS", "RANGE 5 MINUTES")
_NULL_SHARE = 0.1

_CONDITIONS = (
    "n % 7 = {small}",
    "x > {real}",
    "x BETWEEN {low} AND {real} OR n < {small}",
    "{name} = '{word}'",
    "{name} LIKE '%{small}%' AND x IS NOT NULL",
    "NOT (n % 3 = 1 AND x <= {real})",
)
_WINDOWS = {
    "plain": ("", "RANGE 15 SECONDS", "BEGIN NOW - 1 MINUTE END NOW - 3 SECONDS", "ROWS 60"),
    "timed": ("", "RANGE 2 MINUTES", "RANGE 10 MINUTES SLIDE 1 MINUTE", "ROWS 40"),
    "places": ("", "RANGE 20 SECONDS", "ROWS 25"),
}
_OUTPUTS = (
    ("{name}, n, x, row_id", ""),
    ("n, row_id", ""),
    ("count(*) AS c, sum(n) AS s, avg(x) AS a", ""),
    ("{name}, count(*) AS c, max(x) AS m", "GROUP BY {name} ORDER BY {name}"),
)


def schema_of(stream: str) -> StreamSchema:
    statement = parse_statement(DEFINITIONS[stream])
    assert isinstance(statement, CreateStream)
    return statement.schema


def random_rows(stream: str, dice: Random, who: str, first: int, count: int) -> list[Row]:
    """Rows numbered from `first` on by their publisher, so that each is unlike all others."""
    rows: list[Row] = []
    for number in range(first, first + count):
        x = None if dice.random() < _NULL_SHARE else round(dice.uniform(-50, 50), 3)
        row: Row = {"n": number, "x": x}
        if stream == "places":
            row["place"] = f"place {dice.randrange(_PLACES)}"
            row[OP] = "delete" if dice.random() < 0.1 else "row"
        else:
            row["who"] = who
        if stream == "timed":
            late = timedelta(seconds=dice.choice([0, 0, 0, 1, 30, 200]))
            row["at"] = datetime.now(UTC) - late
        rows.append(row)
    return rows


@dataclass(frozen=True)
class SelfJoin(Question):
    """A join of the rows of two publishers with one number, which composites find ahead. `query` is
    that of one leg: its answer is the number and publisher of each row."""

    remainder: int = 0

    @classmethod
    def random(cls, dice: Random) -> SelfJoin:
        window, remainder = dice.choice(_JOIN_WINDOWS), dice.randrange(3)
        sql = (
            "SELECT count(*) AS c, max(l.n) AS top, min(r.n) AS low FROM plain l, plain r "
            f"WHERE l.n = r.n AND l.who <> r.who AND l.n % 3 = {remainder} {window}"
        )
        leg = Question.of(f"SELECT n, who FROM plain {window}", schema_of("plain"))
        return cls(sql, leg.query, leg.schema, remainder)

    def naive(
        self, rows: Sequence[Row], now: datetime | None, *arguments: Any, **options: Any
    ) -> list[Values]:
        numbers = Counter(n for n, _ in super().naive(rows, now, *arguments, **options))
        pairs = {n: m * (m - 1) for n, m in numbers.items() if m > 1 and n % 3 == self.remainder}
        return [(sum(pairs.values()), max(pairs, default=None), min(pairs, default=None))]


def random_question(dice: Random) -> Question:
    """One of some hundred texts, so that registrations sometimes share predicates."""
    if dice.random() < _JOIN_SHARE:
        return SelfJoin.random(dice)
    stream = dice.choice(list(DEFINITIONS))
    name = "place" if stream == "places" else "who"
    outputs, grouping = dice.choice(_OUTPUTS)
    condition = dice.choice(_CONDITIONS)
    window = dice.choice(_WINDOWS[stream])
    text = f"SELECT {outputs} FROM {stream} WHERE {condition} {grouping} {window}"
    filled = text.format(
        name=name,
        small=dice.randrange(7),
        real=dice.choice([-20, 0.5, 20]),
        low=dice.choice([-30, -21]),
        word=f"place {dice.randrange(4)}" if stream == "places" else f"p{dice.randrange(4)}",
    )
    return Question.of(filled, schema_of(stream))
