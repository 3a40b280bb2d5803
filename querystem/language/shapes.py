"""Texts that differ in their constants only: the first ones are bound, the others filled in.

The *shape* of a text is what is left of it without its plain numbers and texts in quotes. Of these
constants some stand alone beside a column, under WHERE. They are treated as parameters are; every
other one belongs to what has to be the same. So a text is the same query as when it is bound by
itself, and whatever could be refused or is out of the ordinary is bound by itself.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from datastem.schema import StreamSchema
from datastem.types import BIGINT, DOUBLE, TEXT, Kind, Type
from querystem.expressions import Expression, Literal
from querystem.language.clauses import Lookup, Names
from querystem.language.errors import QueryError, Span
from querystem.language.filling import Filler, expression_filler
from querystem.language.literals import number
from querystem.language.parse import parse_query
from querystem.language.scan import MAX_TEXT
from querystem.language.templates import bind_query, prepare
from querystem.query import Query

_CONSTANT = re.compile(
    r"((?<![\w.])(?:\d{1,18}|\d{1,12}\.\d{1,12})(?![\w.])|'[^'\\]*'(?!'))", re.ASCII
)
# Nothing here begins a comment, a quoted name or a parameter.
_PLAIN = re.compile(r"[\w\s,.()=<>!+*/%-]*", re.ASCII)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In)
_TYPES = {"whole": BIGINT, "point": DOUBLE, "text": TEXT}
_BESIDE = {
    "whole": (Kind.BIGINT, Kind.DOUBLE),
    "point": (Kind.BIGINT, Kind.DOUBLE),
    "text": (Kind.TEXT,),
}


@dataclass(frozen=True, slots=True)
class _Text:
    """A text cut at its constants: `rest` stands before, between and after them."""

    rest: tuple[str, ...]
    constants: Sequence[str]
    kinds: tuple[str, ...]

    @classmethod
    def cut(cls, text: str) -> _Text:
        parts = _CONSTANT.split(text)
        constants = parts[1::2]
        return cls(tuple(parts[::2]), constants, tuple([_kind(one) for one in constants]))

    @property
    def plain(self) -> bool:
        """Whether the cuts are where the constants are."""
        whole = " ".join(self.rest)
        return bool(_PLAIN.fullmatch(whole)) and "--" not in whole and "/*" not in whole

    def place(self, number: int) -> int:
        """Where a constant begins."""
        before = sum(map(len, self.constants[:number]))
        return before + sum(map(len, self.rest[: number + 1]))


@dataclass(frozen=True, slots=True)
class _Slot:
    """A constant that may be another one; `negative`: there is a minus sign before it."""

    number: int
    kind: str
    negative: bool

    @property
    def name(self) -> str:
        return f"p{self.number}"

    def literal(self, constants: Sequence[str]) -> Literal:
        constant = constants[self.number]
        if self.kind == "text":
            return Literal(constant[1:-1], TEXT)
        node = number(constant, _NOWHERE, self.negative).node
        assert isinstance(node, Literal)
        return node


_NOWHERE = Span(0, 1)


@dataclass(frozen=True, slots=True)
class _Shape:
    slots: tuple[_Slot, ...]
    fixed: tuple[int, ...]

    def key(self, text: _Text) -> tuple[str, ...]:
        return tuple([text.constants[number] for number in self.fixed])


@dataclass(frozen=True, slots=True)
class _Bound:
    """`query` is complete but for its WHERE. `streams` are those that were looked up."""

    query: Query
    where: Filler[Expression]
    slots: tuple[_Slot, ...]
    streams: tuple[tuple[str, StreamSchema | None], ...]

    def fill(self, text: _Text, lookup: Lookup) -> Query | None:
        """None where a stream is another one now."""
        for name, schema in self.streams:
            if lookup(name) is not schema:
                return None
        constants = text.constants
        return self.query.with_where(self.where({s.name: s.literal(constants) for s in self.slots}))


@dataclass
class Shapes:
    """Binds texts, as `bind_query` does, and remembers at most `most` of what it learns.

    May be used from any thread. What is met for the first time is only noted: most texts are
    never followed by another of their shape.
    """

    most: int = 1024
    _known: dict[Hashable, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self) -> int:
        return len(self._known)

    def known(self, scope: Hashable, text: str, lookup: Lookup) -> Query | None:
        """The query of a text, where that takes no parsing.

        Equal names must mean the same streams, or none, in one `scope`.
        """
        cut = _Text.cut(text)
        shape = self._known.get((scope, cut.rest, cut.kinds))
        if not isinstance(shape, _Shape):
            return None
        bound = self._known.get((scope, cut.rest, cut.kinds, shape.key(cut)))
        try:
            return bound.fill(cut, lookup) if isinstance(bound, _Bound) else None
        except QueryError:
            return None

    def bind(
        self,
        scope: Hashable,
        text: str,
        lookup: Lookup,
        *,
        max_text: int = MAX_TEXT,
        names: Names | None = None,
    ) -> Query:
        """Raises QueryError, exactly as `bind_query` does."""
        if len(text) > max_text // 4:
            return bind_query(text, lookup, max_text=max_text, names=names)
        known = self.known(scope, text, lookup)
        if known is not None:
            return known
        query = bind_query(text, lookup, max_text=max_text, names=names)
        self._learn(scope, text, lookup, query)
        return query

    def _learn(self, scope: Hashable, text: str, lookup: Lookup, query: Query) -> None:
        cut = _Text.cut(text)
        key = scope, cut.rest, cut.kinds
        if key not in self._known:
            self._keep(key, None)
            return
        shape = self._known[key]
        if shape is None:
            shape = _shape(text, cut, lookup)
            self._keep(key, shape)
        if shape:
            inner = *key, shape.key(cut)
            seen = inner in self._known
            self._keep(inner, _bound(cut, shape, lookup, query) if seen else None)

    def _keep(self, key: Hashable, value: Any) -> None:
        with self._lock:
            self._known.pop(key, None)
            if len(self._known) >= self.most:
                del self._known[next(iter(self._known))]
            self._known[key] = value


def _kind(constant: str) -> str:
    if constant[0] == "'":
        return "text"
    return "point" if "." in constant else "whole"


def _shape(text: str, cut: _Text, lookup: Lookup) -> _Shape | bool:
    """False where nothing of the text may vary."""
    if not cut.plain:
        return False
    select = parse_query(text).select
    where, source = select.args.get("where"), select.args["from_"].this
    schema = lookup(str(source.this.this).lower())
    if where is None or schema is None:
        return False
    places = {cut.place(at): at for at in range(len(cut.constants))}
    slots = {}
    for node in where.find_all(exp.Literal):
        at = places.get(node.meta.get("start", -1))
        if at is not None and _alone(node, cut.kinds[at], schema.types):
            slots[at] = _Slot(at, cut.kinds[at], isinstance(node.parent, exp.Neg))
    fixed = tuple(at for at in range(len(cut.constants)) if at not in slots)
    return _Shape(tuple(slots[at] for at in sorted(slots)), fixed) if slots else False


def _alone(node: exp.Expr, kind: str, types: Mapping[str, Type]) -> bool:
    """Whether all it meets is a column of a type that gives it none."""
    side: exp.Expr = node
    if isinstance(node.parent, exp.Neg) and kind != "text":
        side = node.parent
    comparison = side.parent
    if not isinstance(comparison, _COMPARISONS):
        return False
    left, right = comparison.this, comparison.args.get("expression")
    column = right if left is side else left
    if not isinstance(column, exp.Column):
        return False
    type_ = types.get(str(column.this.this).lower())
    return type_ is not None and type_.kind in _BESIDE[kind]


def _bound(cut: _Text, shape: _Shape, lookup: Lookup, query: Query) -> _Bound | bool:
    """False where filling in does not give the query that was bound."""
    streams: dict[str, StreamSchema | None] = {}
    types = {slot.name: _TYPES[slot.kind] for slot in shape.slots}

    def noted(name: str) -> StreamSchema | None:
        streams[name] = lookup(name)
        return streams[name]

    try:
        template = prepare(_written(cut, shape), noted, types)
    except QueryError:
        return False
    where = expression_filler(template.query.where)
    # Known once, it is shared by every query that is filled in.
    assert query.form
    bound = _Bound(query, where, shape.slots, tuple(streams.items()))
    return bound if bound.fill(cut, lookup) == query else False


def _written(cut: _Text, shape: _Shape) -> str:
    """The text with parameters in the places that may vary."""
    rest, slots = list(cut.rest), {slot.number: slot for slot in shape.slots}
    written = []
    for at, constant in enumerate(cut.constants):
        slot = slots.get(at)
        if slot is not None and slot.negative:
            rest[at] = rest[at].rstrip().removesuffix("-")
        written += [rest[at], constant if slot is None else f" :{slot.name} "]
    return "".join([*written, rest[-1]])
