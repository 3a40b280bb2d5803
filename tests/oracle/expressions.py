"""Random well-typed expressions over every operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from datastem.types import BIGINT, BOOLEAN, DATE, DOUBLE, DURATION, TEXT, TIMESTAMP, Kind, Type
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op, Zone
from tests.oracle.strategies import decimal_types, nullable, types
from tests.oracle.zoned import ZONES, rules_of

COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.IS_DISTINCT)
TRUNC_UNITS = (
    "microsecond",
    "millisecond",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
) + ("year",)
EXTRACT_UNITS = ("year", "quarter", "month", "week", "day", "dow", "doy", "hour", "minute")

DURATION_UNITS = ("millisecond", "second", "minute", "hour", "day", "week")

_NUMBERS = (Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL)

# What may be cast to each kind.
CASTABLE = {
    Kind.BOOLEAN: (Kind.TEXT,),
    Kind.BIGINT: (Kind.BOOLEAN, Kind.DOUBLE, Kind.DECIMAL, Kind.TEXT),
    Kind.DOUBLE: (Kind.BIGINT, Kind.DECIMAL, Kind.TEXT),
    Kind.DECIMAL: (Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL, Kind.TEXT),
    Kind.TEXT: (Kind.BOOLEAN, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL, Kind.TIMESTAMP, Kind.DATE),
    Kind.TIMESTAMP: (Kind.DATE, Kind.TEXT),
    Kind.DATE: (Kind.TIMESTAMP, Kind.TEXT),
}

_PATTERNS = st.one_of(
    st.sampled_from(("%", "_", "a%", "%a", "%a%", "a_", "%\\%%", "a", "", "_%", "a%b", "\\\\%")),
    st.text("ab%_\\é日\n", max_size=5).filter(lambda text: not text.endswith("\\")),
)
_DIGITS = st.one_of(st.integers(-3, 5), st.sampled_from((-38, -25, 19, 38, 2**62, -(2**63))))


def conditions(
    columns: Mapping[str, Type], depth: int = 3, without: frozenset[Op] = frozenset()
) -> SearchStrategy[Expression]:
    """Return what a WHERE may be."""
    return expressions(columns, BOOLEAN, depth, without)


@st.composite
def expressions(
    draw: DrawFn,
    columns: Mapping[str, Type],
    type_: Type,
    depth: int = 3,
    without: frozenset[Op] = frozenset(),
) -> Expression:
    """Draw an expression of the given type over the columns, without some operations."""
    return _Maker(draw, columns, without).make(type_, depth)


class _Maker:
    def __init__(self, draw: DrawFn, columns: Mapping[str, Type], without: frozenset[Op]) -> None:
        self._draw = draw
        self._columns = columns
        self._without = without

    def make(self, type_: Type, depth: int) -> Expression:
        if depth <= 0 or (type_.kind is not Kind.BOOLEAN and self._one_in(3)):
            return self._leaf(type_)
        makers = _MAKERS[type_.kind] if type_ == DURATION else [*_MAKERS[type_.kind], _Maker.cast]
        maker = self._draw(st.sampled_from([*makers, *_ANY]))
        expression = maker(self, type_, depth - 1)
        refused = isinstance(expression, Call) and expression.op in self._without
        return self._leaf(type_) if refused else expression

    def _one_in(self, count: int) -> bool:
        return self._draw(st.integers(1, count)) == 1

    def _leaf(self, type_: Type) -> Expression:
        names = [name for name, kind in self._columns.items() if kind == type_]
        if names and not self._one_in(4):
            return ColumnRef(self._draw(st.sampled_from(names)), type_)
        return self.literal(type_)

    def literal(self, type_: Type) -> Literal:
        return Literal(self._draw(nullable(type_)), type_)

    def of_kind(self, kind: Kind) -> Type:
        """One that a column has, if any."""
        candidates = [type_ for type_ in self._columns.values() if type_.kind is kind]
        if candidates and not self._one_in(4):
            return self._draw(st.sampled_from(candidates))
        return self._draw(decimal_types()) if kind is Kind.DECIMAL else Type(kind)

    def any_type(self) -> Type:
        column_types = list(self._columns.values())
        any_types = st.one_of(types(), types(), st.just(DURATION))
        return self._draw(any_types if self._one_in(4) else st.sampled_from(column_types))

    def comparable(self, type_: Type) -> Type:
        if type_.is_numeric and self._one_in(2):
            return self.of_kind(self._draw(st.sampled_from(_NUMBERS)))
        return type_

    def comparison(self, _: Type, depth: int) -> Expression:
        lhs_type = self.any_type()
        rhs_type = self.comparable(lhs_type)
        args = [self.make(lhs_type, depth), self.make(rhs_type, 0 if self._one_in(2) else depth)]
        if self._one_in(4):
            args.reverse()
        return Call(self._draw(st.sampled_from(COMPARISONS)), tuple(args), BOOLEAN)

    def connective(self, _: Type, depth: int) -> Expression:
        op = self._draw(st.sampled_from((Op.AND, Op.OR)))
        count = self._draw(st.integers(2, 3))
        return Call(op, tuple(self.make(BOOLEAN, depth) for _ in range(count)), BOOLEAN)

    def negation(self, _: Type, depth: int) -> Expression:
        return Call(Op.NOT, (self.make(BOOLEAN, depth),), BOOLEAN)

    def is_null(self, _: Type, depth: int) -> Expression:
        return Call(Op.IS_NULL, (self.make(self.any_type(), depth),), BOOLEAN)

    def is_in(self, _: Type, depth: int) -> Expression:
        type_ = self.any_type()
        count = self._draw(st.integers(1, 4))
        members = [self.literal(self.comparable(type_)) for _ in range(count)]
        return Call(Op.IN, (self.make(type_, depth), *members), BOOLEAN)

    def like(self, _: Type, depth: int) -> Expression:
        pattern = Literal(self._draw(_PATTERNS), TEXT)
        return Call(Op.LIKE, (self.make(TEXT, depth), pattern), BOOLEAN)

    def case(self, type_: Type, depth: int) -> Expression:
        branches = [
            part
            for _ in range(self._draw(st.integers(1, 2)))
            for part in (self.make(BOOLEAN, depth), self.make(type_, depth))
        ]
        return Call(Op.CASE, (*branches, self.make(type_, depth)), type_)

    def coalesce(self, type_: Type, depth: int) -> Expression:
        return Call(Op.COALESCE, (self.make(type_, depth), self.make(type_, depth)), type_)

    def nullif(self, type_: Type, depth: int) -> Expression:
        return Call(Op.NULLIF, (self.make(type_, depth), self.make(type_, depth)), type_)

    def cast(self, type_: Type, depth: int) -> Expression:
        source = self.of_kind(self._draw(st.sampled_from(CASTABLE[type_.kind])))
        return Call(Op.CAST, (self.make(source, depth),), type_)

    def arithmetic(self, type_: Type, depth: int) -> Expression:
        ops = [Op.ADD, Op.SUB, Op.MUL, Op.MOD]
        ops.append(Op.INT_DIV if type_.kind is Kind.BIGINT else Op.DIV)
        args = self.make(self._like(type_), depth), self.make(self._like(type_), depth)
        return Call(self._draw(st.sampled_from(ops)), args, type_)

    def _like(self, type_: Type) -> Type:
        return self.of_kind(type_.kind) if type_.kind is Kind.DECIMAL else type_

    def one_number(self, type_: Type, depth: int) -> Expression:
        op = self._draw(st.sampled_from((Op.NEG, Op.ABS, Op.FLOOR, Op.CEIL, Op.ROUND)))
        return Call(op, (self.make(self._like(type_), depth),), type_)

    def rounding(self, type_: Type, depth: int) -> Expression:
        digits = Literal(self._draw(_DIGITS), BIGINT)
        return Call(Op.ROUND, (self.make(self._like(type_), depth), digits), type_)

    def shifted(self, _: Type, depth: int) -> Expression:
        op = self._draw(st.sampled_from((Op.ADD, Op.SUB)))
        return Call(op, (self.make(TIMESTAMP, depth), self.make(DURATION, depth)), TIMESTAMP)

    def difference(self, _: Type, depth: int) -> Expression:
        return Call(Op.SUB, (self.make(TIMESTAMP, depth), self.make(TIMESTAMP, depth)), DURATION)

    def two_durations(self, _: Type, depth: int) -> Expression:
        op = self._draw(st.sampled_from((Op.ADD, Op.SUB)))
        return Call(op, (self.make(DURATION, depth), self.make(DURATION, depth)), DURATION)

    def multiple(self, _: Type, depth: int) -> Expression:
        number = self.of_kind(self._draw(st.sampled_from(_NUMBERS)))
        return Call(Op.MUL, (self.make(DURATION, depth), self.make(number, depth)), DURATION)

    def one_duration(self, _: Type, depth: int) -> Expression:
        op = self._draw(st.sampled_from((Op.NEG, Op.ABS)))
        return Call(op, (self.make(DURATION, depth),), DURATION)

    def in_unit(self, type_: Type, depth: int) -> Expression:
        units = DURATION_UNITS if type_ == DOUBLE else ("microsecond",)
        unit = Literal(self._draw(st.sampled_from(units)), TEXT)
        return Call(Op.EXTRACT, (unit, self.make(DURATION, depth)), type_)

    def length(self, _: Type, depth: int) -> Expression:
        return Call(Op.LENGTH, (self.make(TEXT, depth),), BIGINT)

    def one_text(self, _: Type, depth: int) -> Expression:
        op = self._draw(st.sampled_from((Op.LOWER, Op.UPPER, Op.TRIM)))
        return Call(op, (self.make(TEXT, depth),), TEXT)

    def substring(self, _: Type, depth: int) -> Expression:
        places = [self._place(depth) for _ in range(self._draw(st.integers(1, 2)))]
        return Call(Op.SUBSTRING, (self.make(TEXT, depth), *places), TEXT)

    def concatenation(self, _: Type, depth: int) -> Expression:
        count = self._draw(st.integers(2, 3))
        return Call(Op.CONCAT, tuple(self.make(TEXT, depth) for _ in range(count)), TEXT)

    def edge(self, _: Type, depth: int) -> Expression:
        op = self._draw(st.sampled_from((Op.LEFT, Op.RIGHT)))
        return Call(op, (self.make(TEXT, depth), self._place(depth)), TEXT)

    def replacement(self, _: Type, depth: int) -> Expression:
        return Call(
            Op.REPLACE, (self.make(TEXT, depth), self._word(depth), self._word(depth)), TEXT
        )

    def part(self, _: Type, depth: int) -> Expression:
        args = self.make(TEXT, depth), self._word(depth), self._place(depth)
        return Call(Op.SPLIT_PART, args, TEXT)

    def position(self, _: Type, depth: int) -> Expression:
        return Call(Op.STRPOS, (self.make(TEXT, depth), self._word(depth)), BIGINT)

    def prefix(self, _: Type, depth: int) -> Expression:
        return Call(Op.STARTS_WITH, (self.make(TEXT, depth), self._word(depth)), BOOLEAN)

    def _word(self, depth: int) -> Expression:
        """Return a pattern: short, so that texts contain it."""
        if self._one_in(3):
            return self.make(TEXT, depth)
        return Literal(
            self._draw(st.sampled_from(("", "a", "b", "é", "ab", "aa", "日", " "))), TEXT
        )

    def sign(self, _: Type, depth: int) -> Expression:
        kind = self._draw(st.sampled_from((*_NUMBERS, Kind.DURATION)))
        return Call(Op.SIGN, (self.make(self.of_kind(kind), depth),), BIGINT)

    def powers(self, _: Type, depth: int) -> Expression:
        op = self._draw(st.sampled_from((Op.SQRT, Op.EXP, Op.LN, Op.LOG10)))
        return Call(op, (self.make(DOUBLE, depth),), DOUBLE)

    def power(self, _: Type, depth: int) -> Expression:
        return Call(Op.POWER, (self.make(DOUBLE, depth), self.make(DOUBLE, depth)), DOUBLE)

    def extreme(self, type_: Type, depth: int) -> Expression:
        op = self._draw(st.sampled_from((Op.GREATEST, Op.LEAST)))
        count = self._draw(st.integers(2, 3))
        return Call(op, tuple(self.make(type_, depth) for _ in range(count)), type_)

    def _place(self, depth: int) -> Expression:
        if self._one_in(3):
            return self.make(BIGINT, depth)
        return Literal(self._draw(st.integers(-3, 6)), BIGINT)

    def extract(self, type_: Type, depth: int) -> Expression:
        units = ("second",) if type_ == DOUBLE else EXTRACT_UNITS
        return self._of_moment(Op.EXTRACT, units, type_, depth)

    def date_trunc(self, type_: Type, depth: int) -> Expression:
        return self._of_moment(Op.DATE_TRUNC, TRUNC_UNITS, type_, depth)

    def in_zone(self, _: Type, depth: int) -> Expression:
        if Op.AT_TIME_ZONE in self._without:
            return self._leaf(TIMESTAMP)
        name = self._draw(st.sampled_from(ZONES))
        zone, moment = Zone(name, rules_of(name).packed), self.make(TIMESTAMP, depth)
        if self._one_in(2):
            return Call(Op.AT_TIME_ZONE, (moment, zone), TIMESTAMP)
        unit = Literal(self._draw(st.sampled_from(TRUNC_UNITS)), TEXT)
        return Call(Op.DATE_TRUNC, (unit, moment, zone), TIMESTAMP)

    def _of_moment(self, op: Op, units: tuple[str, ...], type_: Type, depth: int) -> Expression:
        moment = self._draw(st.sampled_from((TIMESTAMP, DATE)))
        unit = Literal(self._draw(st.sampled_from(units)), TEXT)
        return Call(op, (unit, self.make(moment, depth)), type_)


Make = Callable[[_Maker, Type, int], Expression]

_ANY: list[Make] = [_Maker.case, _Maker.coalesce, _Maker.nullif, _Maker.extreme]
_NUMBER: list[Make] = [_Maker.arithmetic, _Maker.arithmetic, _Maker.one_number, _Maker.rounding]
_MAKERS: dict[Kind, list[Make]] = {
    Kind.BOOLEAN: [
        _Maker.comparison,
        _Maker.comparison,
        _Maker.comparison,
        _Maker.connective,
        _Maker.connective,
        _Maker.negation,
        _Maker.is_null,
        _Maker.is_in,
        _Maker.like,
        _Maker.prefix,
    ],
    Kind.BIGINT: [
        *_NUMBER,
        _Maker.length,
        _Maker.extract,
        _Maker.in_unit,
        _Maker.sign,
        _Maker.position,
    ],
    Kind.DOUBLE: [*_NUMBER, _Maker.extract, _Maker.in_unit, _Maker.powers, _Maker.power],
    Kind.DECIMAL: _NUMBER,
    Kind.TEXT: [
        _Maker.one_text,
        _Maker.substring,
        _Maker.concatenation,
        _Maker.edge,
        _Maker.replacement,
        _Maker.part,
    ],
    Kind.TIMESTAMP: [_Maker.date_trunc, _Maker.shifted, _Maker.in_zone],
    Kind.DATE: [],
    Kind.DURATION: [
        _Maker.difference,
        _Maker.two_durations,
        _Maker.multiple,
        _Maker.one_duration,
    ],
}
