"""Random SELECT texts over a stream: everything WHERE may hold.

`plain` ones keep to what DuckDB means the same by: comparisons, BETWEEN, IN, LIKE, IS NULL and
their AND, OR, NOT.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random

from tests.system.streams import DAY, TEXTS, Shape

COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]
NUMBERS = ("BIGINT", "DOUBLE", "DECIMAL(10,2)")
PATTERNS = ["a%", "%b", "_", "%", "", "a_b", "I%M", "%本", "z%"]


class Writer:
    """Writes texts for one stream."""

    def __init__(self, dice: Random, shape: Shape, plain: bool = False) -> None:
        self.dice = dice
        self.shape = shape
        self.plain = plain

    def select(self) -> str:
        """Everything up to the window."""
        where = "" if self.dice.random() < 0.05 else f" WHERE {self.where()}"
        return f"SELECT {self._outputs()} FROM {self.shape.name}{where}"

    def where(self, depth: int = 3) -> str:
        if depth and self.dice.random() < 0.55:
            left, right = self.where(depth - 1), self.where(depth - 1)
            return self.dice.choice(
                [f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})"]
            )
        return self._leaf()

    def _outputs(self) -> str:
        if self.plain or self.dice.random() < 0.3:
            return "*"
        names = self.dice.sample(list(self.shape.columns), self.dice.randint(1, 3))
        names += self.dice.sample(["ts", "row_id"], self.dice.randint(0, 2))
        names = list(dict.fromkeys(names))
        if self.dice.random() < 0.5 and self._of(*NUMBERS):
            names.append(f"{self._number()} AS computed")
        return ", ".join(names)

    def _of(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.shape.columns.items() if kind in kinds]

    def _leaf(self) -> str:
        name = self.dice.choice(list(self.shape.columns))
        kind = self.shape.columns[name]
        makers = [self._compare, self._between, self._in, self._null]
        if kind == "TEXT":
            makers.append(self._like)
        if kind == "BOOLEAN":
            makers = [self._flag, self._null]
        if not self.plain:
            makers += [self._distinct, self._rich]
        return self.dice.choice(makers)(name, kind)

    def _compare(self, name: str, kind: str) -> str:
        others = [other for other in self._of(kind) if other != name]
        right = self.dice.choice(others) if others and self.dice.random() < 0.2 else None
        return f"{name} {self.dice.choice(COMPARISONS)} {right or self._literal(kind)}"

    def _between(self, name: str, kind: str) -> str:
        word = self.dice.choice(["BETWEEN", "BETWEEN", "NOT BETWEEN"])
        return f"{name} {word} {self._literal(kind)} AND {self._literal(kind)}"

    def _in(self, name: str, kind: str) -> str:
        items = [self._literal(kind) for _ in range(self.dice.randint(1, 4))]
        if self.dice.random() < 0.1:
            items.append("NULL")
        return f"{name} {self.dice.choice(['IN', 'NOT IN'])} ({', '.join(items)})"

    def _null(self, name: str, kind: str) -> str:
        return f"{name} IS {self.dice.choice(['', 'NOT '])}NULL"

    def _like(self, name: str, kind: str) -> str:
        return f"{name} {self.dice.choice(['LIKE', 'NOT LIKE'])} '{self.dice.choice(PATTERNS)}'"

    def _flag(self, name: str, kind: str) -> str:
        return self.dice.choice([name, f"NOT {name}", f"{name} = TRUE", f"{name} <> FALSE"])

    def _distinct(self, name: str, kind: str) -> str:
        right = "NULL" if self.dice.random() < 0.2 else self._literal(kind)
        return f"{name} IS {self.dice.choice(['', 'NOT '])}DISTINCT FROM {right}"

    def _rich(self, name: str, kind: str) -> str:
        op = self.dice.choice(COMPARISONS)
        if kind in NUMBERS:
            return f"{self._number()} {op} {self._number()}"
        if kind == "TEXT":
            return self._text(name, op)
        if kind == "BOOLEAN":
            return f"CASE WHEN {name} THEN 1 ELSE 2 END {op} 1"
        return self._moment(name, op)

    def _text(self, name: str, op: str) -> str:
        whole = self.dice.randint(0, 3)
        return self.dice.choice(
            [
                f"length({name}) {op} {whole}",
                f"upper({name}) = 'A'",
                f"lower(trim({name})) {op} 'x'",
                f"substring({name}, 1, {whole}) {op} 'ab'",
                f"coalesce({name}, 'none') {op} 'ab'",
                f"nullif({name}, 'a') IS NULL",
                f"CASE {name} WHEN 'a' THEN 1 WHEN 'IBM' THEN 2 END {op} {whole}",
            ]
        )

    def _moment(self, name: str, op: str) -> str:
        part = self.dice.choice(["year", "month", "day", "hour", "minute", "second"])
        unit = self.dice.choice(["minute", "hour", "day", "week", "month"])
        return self.dice.choice(
            [
                f"extract({part} FROM {name}) {op} {self.dice.randint(0, 30)}",
                f"date_trunc('{unit}', {name}) {op} {name}",
                f"CAST({name} AS DATE) {op} DATE '2026-11-16'",
            ]
        )

    def _number(self, depth: int = 2) -> str:
        dice = self.dice
        if not depth or dice.random() < 0.3:
            names = self._of(*NUMBERS)
            if names and dice.random() < 0.8:
                return dice.choice(names)
            return self._literal(dice.choice(NUMBERS))
        left, right = self._number(depth - 1), self._number(depth - 1)
        return dice.choice(
            [
                f"({left} {dice.choice('+-*/%')} {right})",
                f"({left} {dice.choice('+-*/%')} {right})",
                f"abs({left})",
                f"-({left})",
                f"{dice.choice(['round', 'floor', 'ceil'])}({left})",
                f"coalesce({left}, {right})",
                f"CASE WHEN {left} > {right} THEN {left} ELSE {right} END",
                f"CAST({left} AS {dice.choice(['DOUBLE', 'BIGINT'])})",
            ]
        )

    def _literal(self, kind: str) -> str:
        dice = self.dice
        match kind:
            case "BIGINT":
                return str(dice.randint(-5, 10))
            case "DOUBLE":
                return str(dice.randint(-8, 32) / 4)
            case "DECIMAL(10,2)":
                return f"{dice.randint(-200, 800) / 100:.2f}"
            case "TEXT":
                return "'" + dice.choice(TEXTS[:-1]).replace("'", "''") + "'"
            case "TIMESTAMP":
                instant = self.shape.start + timedelta(seconds=dice.randint(0, 1800))
                return f"TIMESTAMP '{instant:%Y-%m-%d %H:%M:%S}'"
            case "DATE":
                return f"DATE '{DAY + timedelta(days=dice.randint(-3, 3))}'"
        return dice.choice(["TRUE", "FALSE"])
