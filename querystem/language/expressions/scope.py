"""The names that expressions of a block may use: the items of its FROM, and their columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from datastem.schema import StreamSchema
from datastem.types import Type
from querystem.expressions import ColumnRef
from querystem.language.errors import BindProblem, Span, UnknownColumn
from querystem.language.tokens.names import nearest, suggest, write_name


@dataclass(frozen=True, slots=True)
class ScopeStream:
    """A stream in FROM, and the number of its window."""

    schema: StreamSchema
    window: int


@dataclass(frozen=True, slots=True)
class ScopeItem:
    """An item of FROM under its name here: `types` are the columns that may be named,
    `star_columns` those of `*`. In bound expressions a column is named with the `prefix` before it.
    `inside` are the streams that a query, or a view, reads."""

    name: str
    types: Mapping[str, Type]
    star_columns: Sequence[str]
    prefix: str = ""
    stream: ScopeStream | None = None
    inside: Sequence[ScopeStream] = ()

    def column(self, name: str) -> ColumnRef:
        own_name = self.stream.schema.labels.get(name, name) if self.stream else name
        return ColumnRef(self.prefix + own_name, self.types[name])

    def unknown(self, name: str, span: Span, hint: str = "") -> UnknownColumn:
        """Return the error for a column that the item does not have."""
        if self.stream is not None:
            hint = hint or self.stream.schema.renaming(name)
        elif name in ("ts", "row_id"):
            hint = f"rows of {self.name} have none: it is a query"
        hint = hint or suggest(name, self.types)
        return UnknownColumn(f"there is no column {name} in {self.name}", span, hint=hint)

    def written(self, name: str) -> str:
        return f"{write_name(self.name)}.{write_name(name)}"


def stream_item(name: str, schema: StreamSchema, prefix: str = "", window: int = 0) -> ScopeItem:
    """Return a stream. In expressions its columns have the names that never change; without a
    `prefix` it is a whole FROM."""
    types, labels = schema.labelled.types, list(schema.labels)
    return ScopeItem(name, types, labels, prefix, ScopeStream(schema, window))


@dataclass(frozen=True, slots=True)
class Scope:
    """The items of a FROM. A column that USING names is one column, that of the item in `merged`,
    though several items have it."""

    items: tuple[ScopeItem, ...]
    merged: Mapping[str, ScopeItem] = field(default_factory=dict)

    def item(self, name: str, span: Span) -> ScopeItem:
        """Return the item of that name; raise BindProblem."""
        for item in self.items:
            if item.name == name:
                return item
        if len(self.items) == 1:
            hint = f"write {self.items[0].name}.column"
        else:
            hint = f"FROM has {', '.join(item.name for item in self.items)}"
        raise BindProblem(f"{name} is not in FROM", span, hint=hint)

    def has(self, name: str) -> bool:
        """Return whether a name alone is that of a column, even an ambiguous one."""
        return any(name in item.types for item in self.items)

    def column(self, name: str, span: Span, hint: str = "") -> ColumnRef:
        """Return the column that a name alone means; raise UnknownColumn, with `hint` if there is
        one, and BindProblem if it may mean several."""
        owners = [item for item in self.items if name in item.types]
        if name in self.merged:
            owners = [self.merged[name]]
        if len(owners) == 1:
            return owners[0].column(name)
        if not self.items:
            hint = hint or "write SELECT … FROM stream"
            raise UnknownColumn(f"there is no column {name} without FROM", span, hint=hint)
        if not owners:
            where = _listed([item.name for item in self.items], "or")
            raise UnknownColumn(
                f"there is no column {name} in {where}", span, hint=hint or self.meant(name)
            )
        candidates = [item.written(name) for item in owners]
        raise BindProblem(
            f"{name} is ambiguous: it may be {_listed(candidates, 'or')}",
            span,
            hint=f"write {candidates[0]}",
            reason="AMBIGUOUS_NAME",
        )

    def unknown_quoted(self, name: str, span: Span) -> UnknownColumn:
        """Return the error for an unknown name in double quotes, which may be meant as a text."""
        hint = f"a text is written in single quotes: '{name[:60]}'"
        near = nearest(name, {column for item in self.items for column in item.types}, 0.75)
        if near:
            hint = f"{self.meant(near)} {hint}"
        hint = self._renaming(name) or hint
        return UnknownColumn(f'there is no column "{name[:60]}"', span, hint=hint)

    def meant(self, name: str) -> str:
        """Return a hint with the nearest column of all items."""
        if hint := self._renaming(name):
            return hint
        if len(self.items) == 1:
            return suggest(name, self.items[0].types)
        near = nearest(name, {column for item in self.items for column in item.types})
        if near is None:
            return suggest(
                name, [i.written(column) for i in self.items for column in i.star_columns]
            )
        written = [item.written(near) for item in self.items if near in item.types]
        return f"did you mean {_listed(written, 'or')}?"

    def _renaming(self, name: str) -> str:
        """Return what became of a column that has had a name; empty if none has."""
        schemas = [item.stream.schema for item in self.items if item.stream is not None]
        return next((hint for schema in schemas if (hint := schema.renaming(name))), "")

    def star(self, of: str | None = None) -> Iterator[tuple[ScopeItem, str]]:
        """Yield the columns of `*`, or of `name.*`; a merged column stands at its item."""
        for item in self.items:
            if of is None or item.name == of:
                for name in item.star_columns:
                    if of is not None or self.merged.get(name, item) is item:
                        yield item, name


def _listed(names: Sequence[str], last: str) -> str:
    """Return the names in a sentence."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {last} {names[-1]}"
