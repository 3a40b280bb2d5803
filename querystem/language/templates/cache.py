"""A cache of templates: texts that differ from earlier ones only in constants are not parsed.

Some constants of a text stand alone beside a column, under WHERE: they are its *holes*, which are
filled as parameters are. All other constants, and all that stands between the constants, must be
the same as in an earlier text. So a text gives the same query as when it is bound by itself. A text
that could be refused, or is unusual, is bound by itself.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sqlglot import exp

from datastem.schema import StreamSchema
from datastem.types import BIGINT, DOUBLE, TEXT, Kind, Type
from querystem.expressions import Literal
from querystem.language.errors import QueryError, Span
from querystem.language.queries.references import Lookup, Named, Names, inside_views
from querystem.language.syntax.parse import parse_query
from querystem.language.templates.template import Template, bind_query, prepare
from querystem.language.tokens.literals import number
from querystem.language.tokens.scan import MAX_TEXT
from querystem.query import Query

# Names, and what they were.
_Sources: TypeAlias = tuple[tuple[str, Named | None], ...]

_CONSTANT = re.compile(
    r"((?<![\w.])(?:\d{1,18}|\d{1,12}\.\d{1,12})(?![\w.])|'[^'\\]*'(?!'))", re.ASCII
)
# What a lookup gives for a kind of text that was not met yet.
_UNSEEN = object()
# No character of these begins a comment, a quoted name or a parameter.
_PLAIN = re.compile(r"[\w\s,.()=<>!+*/%-]*", re.ASCII)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In)
_TYPES = {"whole": BIGINT, "point": DOUBLE, "text": TEXT}
_BESIDE = {
    "whole": (Kind.BIGINT, Kind.DOUBLE),
    "point": (Kind.BIGINT, Kind.DOUBLE),
    "text": (Kind.TEXT,),
}


@dataclass(frozen=True, slots=True)
class _CutText:
    """A text cut at its constants: `between` has the texts before, between and after them."""

    between: tuple[str, ...]
    constants: Sequence[str]
    kinds: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> _CutText:
        parts = _CONSTANT.split(text)
        constants = parts[1::2]
        return cls(tuple(parts[::2]), constants, tuple([_kind(constant) for constant in constants]))

    @property
    def plain(self) -> bool:
        """Whether the text is cut at its constants: no comment or quoted name misleads."""
        whole = " ".join(self.between)
        return bool(_PLAIN.fullmatch(whole)) and "--" not in whole and "/*" not in whole

    def place(self, number: int) -> int:
        """Return the character of the text at which a constant begins."""
        before = sum(map(len, self.constants[:number]))
        return before + sum(map(len, self.between[: number + 1]))


@dataclass(frozen=True, slots=True)
class _Hole:
    """The place of a constant that may vary; `negative` says that a minus sign is before it."""

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
class _Layout:
    """The constants of a text: those that are holes, and the `fixed` ones, which are part of the
    query."""

    holes: tuple[_Hole, ...]
    fixed: tuple[int, ...]

    def key(self, text: _CutText) -> tuple[str, ...]:
        return tuple([text.constants[number] for number in self.fixed])


@dataclass(frozen=True, slots=True)
class _CachedTemplate:
    """A template with a parameter in each hole, and the streams that were looked up for it."""

    template: Template
    holes: tuple[_Hole, ...]
    streams: _Sources
    streams_in_views: _Sources

    def fill(self, text: _CutText, lookup: Lookup) -> Query | None:
        """Return the query of a text; None if a stream is another one now."""
        inside = inside_views(lookup)
        # Schemas are compared by identity: a changed stream has another object.
        if any(lookup(name) is not schema for name, schema in self.streams):
            return None
        if any(inside(name) is not schema for name, schema in self.streams_in_views):
            return None
        constants = text.constants
        literals = {hole.name: hole.literal(constants) for hole in self.holes}
        return self.template.fill_constants(literals)


@dataclass
class TemplateCache:
    """A cache of at most `most` entries that binds texts as `bind_query` does.

    It may be used from any thread. A text of a new kind is only noted at first: most texts are
    never followed by another of their kind.
    """

    most: int = 1024
    _entries: dict[Hashable, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, scope: Hashable, text: str, lookup: Lookup) -> Query | None:
        """Return the query of a text, if that takes no parsing; else None.

        Within one `scope` equal names must mean the same streams, or none.
        """
        cut = _CutText.of(text)
        layout = self._entries.get((scope, cut.between, cut.kinds))
        if not isinstance(layout, _Layout):
            return None
        cached = self._entries.get((scope, cut.between, cut.kinds, layout.key(cut)))
        try:
            return cached.fill(cut, lookup) if isinstance(cached, _CachedTemplate) else None
        # The full binding raises the error again, with its place in the text.
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
        """Return the query of a text; raise QueryError, exactly as `bind_query` does."""
        # A shorter text can't exceed `max_text` bytes, as a character has at most four. So a cached
        # query needs no check of the length.
        if len(text) > max_text // 4:
            return bind_query(text, lookup, max_text=max_text, names=names)
        cached = self.find(scope, text, lookup)
        if cached is not None:
            return cached
        query = bind_query(text, lookup, max_text=max_text, names=names)
        self._learn(scope, text, lookup, query)
        return query

    def _learn(self, scope: Hashable, text: str, lookup: Lookup, query: Query) -> None:
        cut = _CutText.of(text)
        key = scope, cut.between, cut.kinds
        # A text is noted when first seen. The second of its kind gets a layout. A template is made
        # when the fixed constants recur too.
        # One lookup: another thread may evict the key between two.
        layout = self._entries.get(key, _UNSEEN)
        if layout is _UNSEEN:
            self._keep(key, None)
            return
        if layout is None:
            layout = _layout(text, cut, lookup)
            self._keep(key, layout)
        if layout:
            inner = *key, layout.key(cut)
            is_repeated = inner in self._entries
            template = _cached_template(cut, layout, lookup, query) if is_repeated else None
            self._keep(inner, template)

    def _keep(self, key: Hashable, value: Any) -> None:
        # The lock makes evicting and writing one step. `find` needs none: a dict lookup is atomic.
        with self._lock:
            self._entries.pop(key, None)
            if len(self._entries) >= self.most:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = value


def _kind(constant: str) -> str:
    if constant[0] == "'":
        return "text"
    return "point" if "." in constant else "whole"


def _layout(text: str, cut: _CutText, lookup: Lookup) -> _Layout | bool:
    """Return the layout of a text; False if none of its constants may vary."""
    if not cut.plain:
        return False
    query = parse_query(text)
    if not _is_over_one_stream(query):
        return False
    where = query.args.get("where")
    schema = lookup(str(query.args["from_"].this.this.this).lower())
    if where is None or not isinstance(schema, StreamSchema):
        return False
    # The parser's literals and the cut text meet at the character at which a constant begins.
    places = {cut.place(at): at for at in range(len(cut.constants))}
    holes = {}
    for node in where.find_all(exp.Literal):
        at = places.get(node.meta.get("start", -1))
        if at is not None and _stands_alone(node, cut.kinds[at], schema.labelled.types):
            holes[at] = _Hole(at, cut.kinds[at], isinstance(node.parent, exp.Neg))
    fixed = tuple(at for at in range(len(cut.constants)) if at not in holes)
    return _Layout(tuple(holes[at] for at in sorted(holes)), fixed) if holes else False


def _is_over_one_stream(query: exp.Expr) -> bool:
    if not isinstance(query, exp.Select) or query.args.get("joins") or query.args.get("ctes"):
        return False
    source = query.args.get("from_")
    return source is not None and isinstance(source.this, exp.Table)


def _stands_alone(node: exp.Expr, kind: str, types: Mapping[str, Type]) -> bool:
    """Return whether a constant is compared with a column, and takes no other type from it."""
    side: exp.Expr = node
    if isinstance(node.parent, exp.Neg) and kind != "text":
        side = node.parent
    comparison = side.parent
    if not isinstance(comparison, _COMPARISONS):
        return False
    lhs, rhs = comparison.this, comparison.args.get("expression")
    column = rhs if lhs is side else lhs
    if not isinstance(column, exp.Column):
        return False
    type_ = types.get(str(column.this.this).lower())
    return type_ is not None and type_.kind in _BESIDE[kind]


def _cached_template(
    cut: _CutText, layout: _Layout, lookup: Lookup, query: Query
) -> _CachedTemplate | bool:
    """Return the template of a text with this query; False if filling it gives another query."""
    noted = _NotingLookup(lookup)
    types = {hole.name: _TYPES[hole.kind] for hole in layout.holes}
    try:
        template = prepare(_with_parameters(cut, layout), noted, types)
    except QueryError:
        return False
    sources, inside = tuple(noted.sources.items()), tuple(noted.sources_inside.items())
    cached = _CachedTemplate(template, layout.holes, sources, inside)
    # The template is trusted only if it reproduces the query that was bound in full.
    return cached if cached.fill(cut, lookup) == query else False


class _NotingLookup:
    """A lookup that notes what it finds, for names of a text and for those in views."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup, self._inside = lookup, inside_views(lookup)
        self.sources: dict[str, Named | None] = {}
        self.sources_inside: dict[str, Named | None] = {}

    def __call__(self, name: str) -> Named | None:
        return self.sources.setdefault(name, self._lookup(name))

    def inside_views(self, name: str) -> Named | None:
        return self.sources_inside.setdefault(name, self._inside(name))


def _with_parameters(cut: _CutText, layout: _Layout) -> str:
    """Return the text with a parameter in each hole."""
    between, holes = list(cut.between), {hole.number: hole for hole in layout.holes}
    written = []
    for at, constant in enumerate(cut.constants):
        hole = holes.get(at)
        if hole is not None and hole.negative:
            # The sign belongs to the constant: the hole's literal is negative itself.
            between[at] = between[at].rstrip().removesuffix("-")
        written += [between[at], constant if hole is None else f" :{hole.name} "]
    return "".join([*written, between[-1]])
