"""Random expressions as texts that mean the same to us and to DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from datastem.instants import SECOND, format_instant
from datastem.types import BIGINT, DOUBLE, TEXT, TIMESTAMP, Type
from tests.oracle.several.chance import Chance
from tests.oracle.several.worlds import MONEY

_NUMBERS = (BIGINT, MONEY, DOUBLE)
_TYPES = (*_NUMBERS, BIGINT, TEXT, TIMESTAMP)
_SIGNS = ("=", "=", "=", "<", "<=", ">", ">=", "<>", "IS NOT DISTINCT FROM")
_LITERALS = {
    BIGINT: ("1", "0", "2"),
    MONEY: ("0.5", "1.0"),
    DOUBLE: ("5e-1", "1e0"),
    TEXT: ("'a'", "'ab'"),
}

# The columns that are in sight, by the names that a text has for them.
Columns = Mapping[str, Type]


@dataclass(frozen=True)
class Expressions:
    """`origin` is about when the rows are."""

    chance: Chance
    origin: int = 0

    def literals(self, type_: Type) -> Sequence[str]:
        if type_ != TIMESTAMP:
            return _LITERALS[type_]
        moments = [self.origin + seconds * SECOND for seconds in (8, 15)]
        return [f"TIMESTAMP '{format_instant(moment)}'" for moment in moments]

    def type(self) -> Type:
        return self.chance.pick(_TYPES)

    def column(self, columns: Columns, types: Sequence[Type]) -> str | None:
        names = [name for name, type_ in columns.items() if type_ in types]
        return self.chance.pick(names) if names else None

    def value(self, columns: Columns, type_: Type, depth: int = 1) -> str:
        """Return an expression of a type over some of the columns."""
        name = self.column(columns, [type_])
        if name is None:
            return f"CAST({self.chance.pick(self.literals(type_))} AS {type_})"
        if not depth or not self.chance.one_in(2):
            return name
        operand = self.value(columns, type_, depth - 1)
        choices = [f"coalesce({name}, {operand})"]
        choices += [f"CASE WHEN {self.local(columns)} THEN {name} ELSE {operand} END"]
        if type_ == BIGINT:
            choices += [f"({name} + {operand})", f"({name} - {operand})", f"abs({name})"]
            choices += [f"({name} * {operand})", f"({name} % 3)"]
        return self.chance.pick(choices)

    def local(self, columns: Columns) -> str:
        """Return a condition about one column."""
        name = self.chance.pick([*columns])
        literals = self.literals(columns[name])
        choices = [f"{name} {self.chance.pick(_SIGNS)} {self.chance.pick(literals)}"]
        choices += [f"{name} IS NULL", f"{name} IS NOT NULL", f"{name} IN ({', '.join(literals)})"]
        if columns[name] == TEXT:
            choices.append(f"{name} LIKE 'a%'")
        return self.chance.pick(choices)

    def between(self, before: Columns, own_columns: Columns) -> str:
        """Return a condition about a column of each side, if two can be compared."""
        first = self.chance.pick([*before])
        second = self.column(
            own_columns, _NUMBERS if before[first] in _NUMBERS else [before[first]]
        )
        if second is None:
            return self.local({**before, **own_columns})
        choices = [f"{first} {self.chance.pick(_SIGNS)} {second}"] * 3
        if before[first] in (BIGINT, MONEY):
            choices.append(f"{first} BETWEEN {second} - 1 AND {second} + 1")
            choices.append(f"{first} + 1 = {second}")
        if before[first] == TIMESTAMP:
            width = f"INTERVAL '{self.chance.number(0, 6)}' SECOND"
            choices.append(f"{first} - {second} <= {width}")
            choices.append(f"{first} BETWEEN {second} AND {second} + {width}")
        return self.chance.pick(choices)

    def condition(self, columns: Columns, depth: int) -> str:
        if not depth or self.chance.one_in(2):
            if self.chance.one_in(2):
                return self.between(columns, columns)
            return self.local(columns)
        first, second = (self.condition(columns, depth - 1) for _ in range(2))
        return self.chance.pick(
            [f"{first} AND {second}", f"({first} OR {second})", f"NOT ({first})"]
        )

    def aggregate(self, columns: Columns, exact: bool) -> str:
        """Return an aggregate; with `exact` one that does not go by the order of rows."""
        name, number = self.chance.pick([*columns]), self.column(columns, [BIGINT])
        choices = ["count(*)", f"count({name})", f"count(DISTINCT {name})", f"min({name})"]
        choices += [f"max({name})"]
        choices += [] if exact else [f"first({name})", f"last({name})"]
        if number is not None:
            choices += [f"sum({number})", f"sum({number})"]
        return self.chance.pick(choices)
