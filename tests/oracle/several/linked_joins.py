"""Random joins of streams that comparisons connect: those that may have a composite."""

from __future__ import annotations

from collections.abc import Sequence

from datastem.schema import StreamSchema
from datastem.types import BIGINT, Type
from tests.oracle.several.chance import Chance
from tests.oracle.several.conditions import Expressions
from tests.oracle.several.texts import Block, Reference, Shown, Whole
from tests.oracle.several.windows import any_window, range_window


def written_linked_join(
    chance: Chance, schemas: Sequence[StreamSchema], origin: int = 0, most: int = 4
) -> Whole:
    """Return a join of up to `most` references to streams of one kind of time, each of which an
    equality, an inequality or an OR connects with one before it; with further conditions about one
    of them or several."""
    say = Expressions(chance, origin)
    first = chance.pick(schemas)
    alike = [
        schema for schema in schemas if (schema.ordered_by is None) == (first.ordered_by is None)
    ]
    has_own_windows = chance.one_in(2)
    parts = [
        _reference(chance, stream, number, origin, has_own_windows)
        for number, stream in enumerate(
            [first, *(chance.pick(alike) for _ in range(chance.number(1, most - 1)))]
        )
    ]
    columns = [_columns(part) for part in parts]
    conditions = []
    for number in range(1, len(parts)):
        conditions += [_link(say, chance.pick(columns[:number]), columns[number])]
    every = {name: type_ for part_columns in columns for name, type_ in part_columns.items()}
    while chance.one_in(2):
        conditions.append(f"({say.condition(every, 1)})")
    retained = [part.stream.retain for part in parts if part.stream.retain is not None]
    window = None if has_own_windows else range_window(chance, min(retained, default=None))
    outputs = tuple(
        Shown(say.value(every, BIGINT), f"o{place}", BIGINT) for place in range(chance.number(1, 2))
    )
    links = ((",", ""),) * (len(parts) - 1)
    return Whole((Block(tuple(parts), links, outputs, " AND ".join(conditions)),), window=window)


def _reference(
    chance: Chance, stream: StreamSchema, number: int, origin: int, has_own_window: bool
) -> Reference:
    window = any_window(chance, stream, origin) if has_own_window else None
    return Reference(stream, f"r{number}", window)


def _columns(part: Reference) -> dict[str, Type]:
    return {f"{part.alias}.{name}": type_ for name, type_ in part.stream.types.items()}


def _link(say: Expressions, before: dict[str, Type], columns: dict[str, Type]) -> str:
    """Return an equality, now and then an inequality, a band or an OR."""
    chance = say.chance
    if chance.one_in(6):
        return f"({_link(say, before, columns)} OR {_equality(say, before, columns)})"
    if chance.one_in(6):
        low, high = _number(chance, before), _number(chance, before)
        return f"{_number(chance, columns)} BETWEEN {low} AND {high} + {chance.number(0, 3)}"
    if chance.one_in(6):
        op = chance.pick(("<", "<=", ">", ">="))
        return f"{_number(chance, before)} {op} {_number(chance, columns)}"
    if chance.one_in(8):
        times = [next(name for name in side if name.endswith(".ts")) for side in (before, columns)]
        return f"abs({times[0]} - {times[1]}) < INTERVAL '{chance.number(1, 4)}' SECOND"
    return _equality(say, before, columns)


def _number(chance: Chance, columns: dict[str, Type]) -> str:
    return chance.pick([name for name, type_ in columns.items() if type_.is_numeric])


def _equality(say: Expressions, before: dict[str, Type], columns: dict[str, Type]) -> str:
    """Return an equality of two expressions, mostly of columns."""
    if say.chance.one_in(5):
        return " = ".join(say.value(side, BIGINT) for side in (before, columns))
    if say.chance.one_in(8):
        names = [next(name for name in side if name.endswith(".ts")) for side in (before, columns)]
        apart = say.chance.number(0, 4)
        return f"{names[0]} - {names[1]} = INTERVAL '{apart}' SECOND"
    return f"{_number(say.chance, before)} = {_number(say.chance, columns)}"
