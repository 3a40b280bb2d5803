"""Queries over several streams as they are written: once in our language, once in DuckDB's.

DuckDB has no windows: there each reference is a table of its own, `leg0`, `leg1`, … in the order of
the text, with the rows that its window holds. Rows of queries inside queries have their `ts` there
as a column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from datastem.schema import StreamSchema
from datastem.types import Type
from results.window import UNBOUNDED, TimeWindow, Window
from tests.oracle.clocks import Awaited, depends_on_now
from tests.oracle.written import WrittenWindow


@dataclass(frozen=True)
class Reference:
    """A stream in FROM. `alias_first`: the alias stands before WINDOW(). With `lookup`, AS OF or AS
    KNOWN AT another reference, its rows are looked up. `refresh` stands in its WINDOW()."""

    stream: StreamSchema
    alias: str
    window: WrittenWindow | None
    alias_first: bool = False
    lookup: str = ""
    refresh: str = ""

    @property
    def over(self) -> str:
        if self.window is None:
            return ""
        return f"WINDOW({self.window.text or 'UNBOUNDED'}{self.refresh and ' '}{self.refresh})"


@dataclass(frozen=True)
class Inner:
    """A query in FROM: in parentheses, or by the name that WITH gives it."""

    query: Whole
    alias: str
    over: WrittenWindow | None = None
    name: str = ""


Part = Reference | Inner


@dataclass(frozen=True)
class Shown:
    """An output: an expression, its name, and its type if that is known."""

    text: str
    name: str
    type: Type | None = None
    aggregate: bool = False


@dataclass(frozen=True)
class Sorted:
    text: str
    descending: bool
    nulls_first: bool

    def sql_of(self, text: str) -> str:
        direction = "DESC" if self.descending else "ASC"
        return f"{text} {direction} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


@dataclass(frozen=True)
class AskedQuery:
    """A condition with a query inside, in whose text the query stands as {}."""

    text: str
    query: Whole


@dataclass(frozen=True)
class Block:
    """A SELECT. `links[n]` is how item n + 1 comes to those before: a comma, or JOIN and ON."""

    parts: tuple[Part, ...]
    links: tuple[tuple[str, str], ...]
    outputs: tuple[Shown, ...]
    where: str = ""
    asked: tuple[AskedQuery, ...] = ()
    group_by: tuple[str, ...] = ()
    having: str = ""
    distinct: bool = False
    window: WrittenWindow | None = None
    in_parentheses: bool = False

    @property
    def parts_timed(self) -> bool:
        return all(isinstance(part, Reference) or part.query.timed for part in self.parts)

    @property
    def grouped(self) -> bool:
        return bool(self.group_by) or any(output.aggregate for output in self.outputs)


@dataclass(frozen=True)
class Whole:
    """One SELECT, or several with set operators between them, and what follows the last.

    `exact` is False if DuckDB could answer otherwise: first and last go by our order.
    """

    blocks: tuple[Block, ...]
    operators: tuple[str, ...] = ()
    window: WrittenWindow | None = None
    order_by: tuple[Sorted, ...] = ()
    limit: int | None = None
    offset: int = 0
    names: tuple[tuple[str, Whole], ...] = field(default=())
    exact: bool = True
    refresh: str = ""

    @property
    def outputs(self) -> tuple[Shown, ...]:
        return self.blocks[0].outputs

    @property
    def timed(self) -> bool:
        """Whether rows have a ts: those of selections and joins have, and of UNION ALL of such."""
        plain = all(
            block.parts_timed and not block.grouped and not block.distinct for block in self.blocks
        )
        return plain and {*self.operators} <= {"UNION ALL"} and self.limit is None

    @property
    def settled(self) -> bool:
        """Whether the order of rows is decided: by their ts, as groups are, or by values."""
        weak = [operator for operator in self.operators if not operator.startswith("INTERSECT")]
        if self.operators and [*self.operators[-1:], *weak][-1] != "UNION ALL":
            return True
        if len(self.blocks) > 1:
            return replace(self, limit=None).timed
        return self.blocks[0].parts_timed or self.blocks[0].grouped

    @property
    def ordered(self) -> bool:
        """Whether the rows of its answer have one order: if it is not decided, a limit comes with
        ORDER BY all outputs."""
        return self.settled or self.limit is not None

    def joined(self, blocks: Sequence[str]) -> str:
        """Return the texts of the blocks with the operators between them."""
        text = blocks[0]
        for operator, block in zip(self.operators, blocks[1:], strict=True):
            text = f"{text} {operator} {block}"
        return text


# ---- in our language


def our_text(whole: Whole) -> str:
    named = ", ".join(f"{name} AS ({our_text(inner)})" for name, inner in whole.names)
    parts = [f"WITH {named}"] if named else []
    parts.append(whole.joined([_our_block(block) for block in whole.blocks]))
    parts += _cut(whole)
    if whole.window is not None:
        parts.append(whole.window.text)
    parts.append(whole.refresh)
    return " ".join(part for part in parts if part)


def _cut(whole: Whole) -> list[str]:
    """ORDER BY, LIMIT and OFFSET."""
    parts = []
    if whole.order_by:
        parts.append(f"ORDER BY {', '.join(key.sql_of(key.text) for key in whole.order_by)}")
    if whole.limit is not None:
        parts.append(f"LIMIT {whole.limit}")
    if whole.offset:
        parts.append(f"OFFSET {whole.offset}")
    return parts


def _our_block(block: Block) -> str:
    inner_texts = [inner.text.format(our_text(inner.query)) for inner in block.asked]
    text = _select(block, [_our_part(part) for part in block.parts], inner_texts)
    if block.window is not None:
        text = f"{text} {block.window.text}".strip()
    return f"({text})" if block.in_parentheses else text


def _our_part(part: Part) -> str:
    if isinstance(part, Reference) and part.lookup:
        return f"{part.stream.name} {part.lookup} AS {part.alias}"
    if isinstance(part, Reference):
        named = [part.alias, part.over] if part.alias_first else [part.over, "AS", part.alias]
        return " ".join(word for word in [part.stream.name, *named] if word)
    over = "" if part.over is None else f" WINDOW({part.over.text or 'UNBOUNDED'})"
    source = part.name or f"({our_text(part.query)})"
    return f"{source} AS {part.alias}{over}"


def _select(
    block: Block, parts: Sequence[str], inner_texts: Sequence[str], extra: Sequence[str] = ()
) -> str:
    outputs = [*[f"{output.text} AS {output.name}" for output in block.outputs], *extra]
    clauses = [f"SELECT {'DISTINCT ' if block.distinct else ''}{', '.join(outputs)}"]
    source = parts[0]
    for part, (link, condition) in zip(parts[1:], block.links, strict=True):
        source = f"{source}{link} {part} {condition}".strip()
    clauses.append(f"FROM {source}")
    where = [block.where, *inner_texts] if block.where else inner_texts
    if where:
        clauses.append(f"WHERE {' AND '.join(where)}")
    if block.group_by:
        clauses.append(f"GROUP BY {', '.join(block.group_by)}")
    if block.having:
        clauses.append(f"HAVING {block.having}")
    return " ".join(clauses)


# ---- in DuckDB's language


def duck_text(whole: Whole, now: int) -> str:
    """Without LIMIT. The values of ORDER BY follow the outputs; `now` is NOW of the query."""
    writer = _Duck(now)
    if len(whole.blocks) == 1:
        (block,) = whole.blocks
        texts = {output.name: output.text for output in whole.outputs}
        keys = [f"({texts.get(key.text, key.text)})" for key in whole.order_by]
        parts = [writer.part(part) for part in block.parts]
        text = _select(block, parts, writer.asked(block), keys)
    else:
        names = [*[output.name for output in whole.outputs], *[key.text for key in whole.order_by]]
        text = f"SELECT {', '.join(names)} FROM ({writer.rows(replace(whole, limit=None))})"
    place = len(whole.outputs) + 1
    order = ", ".join(key.sql_of(str(place + n)) for n, key in enumerate(whole.order_by))
    return f"{text} ORDER BY {order}" if order else text


@dataclass
class _Duck:
    now: int
    legs: int = 0

    def part(self, part: Part) -> str:
        if isinstance(part, Reference):
            self.legs += 1
            return f"leg{self.legs - 1} AS {part.alias}"
        inner = self.rows(part.query)
        if part.over is not None:
            assert isinstance(part.over.window, TimeWindow)
            begin, end = part.over.window.at(self.now)
            after = "" if begin is None else f"epoch_us(ts) >= {begin} AND "
            inner = f"SELECT * FROM ({inner}) WHERE {after}epoch_us(ts) < {end}"
        return f"({inner}) AS {part.alias}"

    def rows(self, whole: Whole) -> str:
        """Return the rows of an inner query, with their ts if they have one."""
        text = whole.joined([self._block(block, whole.timed) for block in whole.blocks])
        return text if whole.limit is None else " ".join([text, *_cut(whole)])

    def _block(self, block: Block, timed: bool) -> str:
        parts = [self.part(part) for part in block.parts]
        ts = ", ".join(f"{part.alias}.ts" for part in block.parts)
        extra = [f"greatest({ts}) AS ts"] if timed else []
        return _select(block, parts, self.asked(block), extra)

    def asked(self, block: Block) -> list[str]:
        """Return the conditions with queries inside."""
        return [inner.text.format(self.untimed(inner.query)) for inner in block.asked]

    def untimed(self, whole: Whole) -> str:
        """Return the rows of a query inside an expression."""
        text = whole.joined([self._block(block, False) for block in whole.blocks])
        return text if whole.limit is None else " ".join([text, *_cut(whole)])


# ---- what windows the references have


@dataclass(frozen=True)
class Placed:
    """A reference with the window that counts for it; `below`: a window over it depends on NOW."""

    reference: Reference
    window: Window
    below: bool

    @property
    def awaited(self) -> Awaited:
        return Awaited(self.reference.stream.name, self.below or depends_on_now(self.window))


def placed(whole: Whole, below: bool = False) -> Iterator[Placed]:
    """Yield the references of a text, in its order: each has its own window, that of its block,
    that of the whole, or none."""
    for block in whole.blocks:
        common = block.window or whole.window
        for part in block.parts:
            if isinstance(part, Inner):
                over = part.over is not None and depends_on_now(part.over.window)
                yield from placed(part.query, below or over)
                continue
            chosen = None if part.lookup else part.window or common
            yield Placed(part, UNBOUNDED if chosen is None else chosen.window, below)
        for inner in block.asked:
            yield from placed(inner.query, below)
