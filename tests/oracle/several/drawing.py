"""Random queries over several streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from datastem.schema import StreamSchema
from datastem.types import BIGINT, TIMESTAMP, Type
from tests.oracle.several.chance import Chance
from tests.oracle.several.conditions import Columns, Expressions
from tests.oracle.several.texts import (
    AskedQuery,
    Block,
    Inner,
    Part,
    Reference,
    Shown,
    Sorted,
    Whole,
    placed,
)
from tests.oracle.several.windows import any_window, every, range_window
from tests.oracle.written import WrittenWindow

_MAX_REFERENCES = 6
_SIGNS = ("=", "<>", "<", "<=", ">", ">=")
_BY_VALUE = (
    "UNION",
    "UNION ALL",
    "INTERSECT",
    "INTERSECT ALL",
    "INTERSECT ALL",
    "EXCEPT",
    "EXCEPT ALL",
    "EXCEPT ALL",
)


def written(chance: Chance, schemas: Sequence[StreamSchema], origin: int = 0) -> Whole:
    """Return a query over some streams, whose rows are at `origin` and somewhat later."""
    return Writer(chance, schemas, origin).whole()


class Writer:
    """Draws a query; with `refreshed` some of its references have REFRESH in their WINDOW()."""

    def __init__(
        self,
        chance: Chance,
        schemas: Sequence[StreamSchema],
        origin: int,
        refreshed: bool = False,
    ) -> None:
        self._chance = chance
        self._schemas = schemas
        self._origin = origin
        self._refreshed = refreshed
        self._say = Expressions(chance, origin)
        self._aliases = 0
        self._references = 0

    # ---- queries

    def whole(self) -> Whole:
        named = self._inner(depth=0) if self._chance.one_in(5) else None
        if named is None and self._chance.one_in(5):
            return self._finished(self._united(depth=1), ())
        block, columns = self._source(depth=1, named=named, least=2)
        query = Whole((block,), (), self._common([block]), names=(("w", named),) if named else ())
        if named is None and self._chance.one_in(6):
            query, columns = self._with_lookup(query, columns)
            (block,) = query.blocks
        if self._chance.one_in(3):
            exact = not block.parts_timed
            return self._finished(self._grouped(query, columns, exact), ())
        outputs, distinct = self._outputs(columns), self._chance.one_in(5)
        block = replace(block, outputs=outputs, distinct=distinct)
        return self._finished(replace(query, blocks=(block,)), () if distinct else tuple(columns))

    def _with_lookup(self, query: Whole, columns: Columns) -> tuple[Whole, Columns]:
        """Return the query with rows of a keyed stream as of those of another, or of a query, if
        there is one with the same kind of time."""
        (block,) = query.blocks
        pairs = [
            (part, stream)
            for part in block.parts
            for stream in self._schemas
            if stream.key and stream.retain is None
            if _clocks(part) == {stream.ordered_by is None}
        ]
        if not pairs:
            return query, columns
        source, stream = self._chance.pick(pairs)
        as_known = [f"AS KNOWN AT {source.alias}"] if isinstance(source, Reference) else []
        lookup = self._chance.pick([f"AS OF {source.alias}.ts", *as_known])
        part = Reference(stream, self._alias(), None, lookup=lookup)
        new_columns = _columns(part)
        condition = " AND ".join(
            f"{part.alias}.{name} = {self._say.value(columns, stream.types[name])}"
            for name in stream.key
        )
        while self._chance.one_in(3):
            condition = f"{condition} AND {self._say.between(columns, new_columns)}"
        link = self._chance.pick([" JOIN", " LEFT JOIN"]), f"ON {condition}"
        block = replace(block, parts=(*block.parts, part), links=(*block.links, link))
        return replace(query, blocks=(block,), exact=False), {**columns, **new_columns}

    def _united(self, depth: int) -> Whole:
        """Set operations on blocks whose outputs have the same types.

        A window after the last block is that of all; other blocks may have their own.
        """
        types = [self._say.type() for _ in range(self._chance.number(1, 2))]
        blocks = []
        for letter in "uxy"[: self._chance.number(2, 3)]:
            block, columns = self._source(depth - 1, most=2)
            values = [self._say.value(columns, type_) for type_ in types]
            names = [f"{letter}{place}" for place in range(len(types))]
            outputs = tuple(Shown(*output) for output in zip(values, names, types, strict=True))
            blocks.append(replace(block, outputs=outputs, distinct=self._chance.one_in(6)))
        blocks = [
            replace(block, window=self._common([block]), in_parentheses=self._chance.one_in(3))
            for block in blocks[:-1]
        ] + blocks[-1:]
        by_value = self._chance.one_in(2)
        operators = tuple(
            self._chance.pick(_BY_VALUE) if by_value else "UNION ALL" for _ in blocks[1:]
        )
        return Whole(tuple(blocks), operators, self._common(blocks))

    def _inner(self, depth: int) -> Whole:
        """Return a query inside another, of any kind."""
        if depth and self._chance.one_in(3):
            return self._united(depth)
        block, columns = self._source(depth, most=2)
        query = Whole((block,), (), self._common([block]))
        if self._chance.one_in(5):
            return self._grouped(query, columns, exact=True)
        block = replace(block, outputs=self._outputs(columns), distinct=self._chance.one_in(6))
        query = replace(query, blocks=(block,))
        return self._cut(query, []) if self._chance.one_in(6) else query

    def _finished(self, query: Whole, columns: Sequence[str]) -> Whole:
        """Return the query with ORDER BY outputs or columns, LIMIT and OFFSET, or without."""
        names = [*[output.name for output in query.outputs], *columns]
        keys: list[Sorted] = []
        while names and len(keys) < 2 and self._chance.one_in(2):
            name = self._chance.pick(names)
            names.remove(name)
            keys.append(Sorted(name, self._chance.one_in(2), self._chance.one_in(2)))
        if not self._chance.one_in(4):
            return replace(query, order_by=tuple(keys))
        return self._cut(query, keys)

    def _cut(self, query: Whole, keys: list[Sorted]) -> Whole:
        """Return the query with a limit. If its order is not decided, it is ordered by all
        outputs."""
        if not keys or not query.settled:
            named = [key.text for key in keys]
            keys = keys + [
                Sorted(output.name, self._chance.one_in(2), self._chance.one_in(2))
                for output in query.outputs
                if output.name not in named
            ]
        limit, offset = self._chance.number(0, 5), self._chance.number(0, 2)
        return replace(query, order_by=tuple(keys), limit=limit, offset=offset)

    # ---- FROM and WHERE

    def _source(
        self, depth: int, named: Whole | None = None, least: int = 1, most: int = 3
    ) -> tuple[Block, Columns]:
        parts = [self._part(depth) for _ in range(self._chance.number(least, most))]
        if named is not None:
            for place in range(self._chance.number(1, 2)):
                over = self._over() if named.timed else None
                parts[place : place + 1] = [Inner(named, self._alias(), over, "w")]
        columns = since_comma = _columns(parts[0])
        links = []
        for part in parts[1:]:
            new_columns = _columns(part)
            links.append(self._link(since_comma, new_columns))
            since_comma = new_columns if links[-1][0] == "," else since_comma | new_columns
            columns = columns | new_columns
        where = self._say.condition(columns, 2) if self._chance.one_in(2) else ""
        where = f"({where})" if where else ""
        inner_queries = (self._inner_query(columns),) if self._may_ask(depth) else ()
        return Block(tuple(parts), tuple(links), (), where, inner_queries), columns

    # ---- queries inside expressions

    def _may_ask(self, depth: int) -> bool:
        return bool(depth) and self._references < _MAX_REFERENCES and self._chance.one_in(4)

    def _inner_query(self, outer: Columns) -> AskedQuery:
        """Return a condition with a query, which may name columns of the rows it is about."""
        name = self._chance.pick([*outer])
        block, columns = self._source(0, most=2)
        if self._chance.one_in(3):
            return self._scalar(name, outer, block, columns)
        if self._chance.one_in(2):
            related = self._say.between(outer, columns)
            block = replace(block, where=f"{block.where} AND {related}" if block.where else related)
        value = self._say.value(columns, outer[name], 0)
        query = self._windowed(replace(block, outputs=(Shown(value, "q0", outer[name]),)))
        sign, word = self._chance.pick(_SIGNS), self._chance.pick(["ALL", "ANY", "SOME"])
        forms = ["EXISTS ({})", "NOT EXISTS ({})", f"{name} IN ({{}})", f"{name} NOT IN ({{}})"]
        forms += [f"{name} {sign} {word} ({{}})"] * 3
        text = self._chance.pick(forms)
        if self._chance.one_in(3):
            text = f"({text} OR {self._say.local(outer)})"
        return AskedQuery(text, query)

    def _scalar(self, name: str, outer: Columns, block: Block, columns: Columns) -> AskedQuery:
        """Return a comparison with an aggregate, over all rows or those that go with the outer
        row by an equality or by any condition."""
        outer_column = self._chance.pick([*outer])
        inner_column = self._say.column(columns, [outer[outer_column]])
        related = ""
        if inner_column is not None and self._chance.one_in(2):
            related = f"{outer_column} {self._chance.pick(_SIGNS)} {inner_column}"
        elif self._chance.one_in(3):
            related = self._say.between(outer, columns)
        if related:
            block = replace(block, where=f"{block.where} AND {related}" if block.where else related)
        function = self._chance.pick(["min", "max"])
        value = f"{function}({self._say.value(columns, outer[name], 0)})"
        text = f"{name} {self._chance.pick(_SIGNS)} ({{}})"
        if self._chance.one_in(3):
            value, text = "count(*)", f"({{}}) {self._chance.pick(_SIGNS)} 1"
        query = self._windowed(replace(block, outputs=(Shown(value, "q0", None, True),)))
        return AskedQuery(text, query)

    def _windowed(self, block: Block) -> Whole:
        return Whole((block,), (), self._common([block]))

    def _part(self, depth: int) -> Part:
        if depth and self._references < _MAX_REFERENCES and self._chance.one_in(4):
            query = self._inner(depth - 1)
            return Inner(query, self._alias(), self._over() if query.timed else None)
        self._references += 1
        schema = self._chance.pick(self._schemas)
        refresh = every(self._chance) if self._refreshed and self._chance.one_in(2) else ""
        windowed = self._chance.one_in(2) or refresh
        window = any_window(self._chance, schema, self._origin) if windowed else None
        alias_first = self._chance.one_in(2)
        return Reference(schema, self._alias(), window, alias_first, refresh=refresh)

    def _link(self, before: Columns, new_columns: Columns) -> tuple[str, str]:
        if self._chance.one_in(6):
            return " CROSS JOIN", ""
        if self._chance.one_in(3):
            return ",", ""
        condition = self._say.between(before, new_columns)
        while self._chance.one_in(3):
            condition = f"{condition} AND {self._say.between(before, new_columns)}"
        if not self._chance.one_in(3):
            return self._chance.pick([" JOIN", " INNER JOIN"]), f"ON {condition}"
        while self._chance.one_in(3):
            side = self._chance.pick([before, new_columns])
            condition = f"{condition} AND {self._say.local(side)}"
        return self._chance.pick([" LEFT JOIN", " LEFT OUTER JOIN"]), f"ON {condition}"

    def _alias(self) -> str:
        self._aliases += 1
        return f"r{self._aliases - 1}"

    def _over(self) -> WrittenWindow | None:
        return range_window(self._chance, None) if self._chance.one_in(2) else None

    def _common(self, blocks: Sequence[Block]) -> WrittenWindow | None:
        """Return a window for the streams of some blocks that have none, which none of them
        refuses."""
        parts = [part for block in blocks if block.window is None for part in block.parts]
        if any(isinstance(part, Inner) and part.name for part in parts) or self._chance.one_in(2):
            return None
        references = [part for part in parts if isinstance(part, Reference)]
        streams = [part.stream for part in references if part.window is None]
        retained = [stream.retain for stream in streams if stream.retain is not None]
        return range_window(self._chance, min(retained, default=None)) if streams else None

    # ---- SELECT

    def _outputs(self, columns: Columns) -> tuple[Shown, ...]:
        names = ["o0", "o1", "o2"][: self._chance.number(1, 3)]
        types = [self._chance.pick([*columns.values()]) for _ in names]
        values = [self._say.value(columns, type_) for type_ in types]
        return tuple(Shown(*output) for output in zip(values, names, types, strict=True))

    def _grouped(self, query: Whole, columns: Columns, exact: bool) -> Whole:
        """With `exact` no aggregate goes by the order of rows."""
        chosen = [self._chance.pick([*columns]) for _ in range(self._chance.number(0, 2))]
        keys = [self._say.value(columns, columns[name]) for name in chosen]
        outputs = [
            Shown(text, f"o{place}", columns[name])
            for place, (text, name) in enumerate(zip(keys, chosen, strict=True))
        ]
        aggregates = [self._say.aggregate(columns, exact) for _ in range(self._chance.number(1, 2))]
        outputs += [
            Shown(text, f"a{place}", BIGINT if text.startswith("count") else None, True)
            for place, text in enumerate(["count(*)", *aggregates] if exact else aggregates)
        ]
        having = f"count(*) > {self._chance.number(0, 2)}" if self._chance.one_in(3) else ""
        (block,) = query.blocks
        block = replace(block, outputs=tuple(outputs), group_by=tuple(keys), having=having)
        exact = not any(aggregate.startswith(("first", "last")) for aggregate in aggregates)
        return replace(query, blocks=(block,), exact=exact and query.exact)


def _clocks(part: Part) -> set[bool]:
    """Return whether each stream that the rows of a part are of has arrival time; empty if they
    have no ts."""
    if isinstance(part, Reference):
        return {part.stream.ordered_by is None}
    inside = placed(part.query) if part.query.timed else ()
    return {place.reference.stream.ordered_by is None for place in inside}


def _columns(part: Part) -> dict[str, Type]:
    """Return the columns of an item by their qualified names."""
    if isinstance(part, Reference):
        columns = dict(part.stream.types)
    else:
        columns = {
            output.name: output.type for output in part.query.outputs if output.type is not None
        }
        columns |= {"ts": TIMESTAMP} if part.query.timed else {}
    return {f"{part.alias}.{name}": type_ for name, type_ in columns.items()}
