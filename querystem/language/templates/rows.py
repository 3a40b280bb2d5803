"""One text with many rows of values, each bound as it would be alone.

A value has its own type and NULL has none, whatever stands above and below it in its column. So the
text is parsed once, bound once for each combination of types that rows have, and filled in for the
rows that have it. If DECIMALs are only compared, one binding serves all their precisions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlglot import exp

from datastem.types import Type
from querystem.expressions import Scalar
from querystem.language.errors import located
from querystem.language.queries.references import Lookup, Names
from querystem.language.syntax.parse import parse_query
from querystem.language.templates.template import Template, bind_template
from querystem.language.tokens.literals import infer
from querystem.language.tokens.scan import MAX_TEXT
from querystem.query import Query
from querystem.query_json import query_form

ValueColumns = Mapping[str, Sequence[Scalar]]
Types = tuple[tuple[str, Type | None], ...]
Places = list[int]

# Python types whose values all have one type of the language.
_PLAIN = {bool, float, str, datetime, date}


@dataclass(frozen=True, slots=True)
class BoundRows:
    """The queries of the rows, in their order, in one of two ways.

    Queries that differ in nothing but their predicates share `form`, and `keys` has the predicate
    of each; `queries` is empty. Otherwise `form` is None and `queries` has each. `pattern` is a
    query over the same streams as all of them; None without rows.
    """

    form: str | None
    pattern: Query | None
    keys: Sequence[str] = ()
    queries: Sequence[Query] = ()


def bind_rows(
    text: str,
    lookup: Lookup,
    columns: ValueColumns,
    count: int,
    *,
    max_text: int = MAX_TEXT,
    names: Names | None = None,
) -> BoundRows:
    """Bind `text` with each of `count` rows of values, as `bind_query` would one by one.

    Raise QueryError if any of them is refused.
    """
    with located(text):
        parsed = parse_query(text, max_text)
        groups = _grouped(columns, count)
    bound = [
        _TypedRows(template, columns, places)
        for rows in groups
        for template, places in _templates(text, parsed, lookup, names, rows)
    ]
    pattern = bound[0].pattern if bound else None
    forms = {form for group in bound for form in group.forms()}
    if len(forms) == 1 and not any(group.refreshes_on or group.several for group in bound):
        keys = [""] * count
        for group in bound:
            for place, key in zip(group.places, group.keys(), strict=True):
                keys[place] = key
        return BoundRows(forms.pop(), pattern, keys)
    queries: dict[int, Query] = {}
    for group in bound:
        queries.update(zip(group.places, group.queries(), strict=True))
    return BoundRows(None, pattern, queries=[queries[place] for place in range(count)])


class _TypedRows:
    """Rows whose values have the same types; they are filled in at once if that is possible."""

    def __init__(self, template: Template, columns: ValueColumns, places: Sequence[int]) -> None:
        self.places = places
        self._template = template
        self._columns = {
            name: [values[place] for place in places] for name, values in columns.items()
        }
        self._at_once = template.fill_many(self._columns)
        self._queries = None if self._at_once else list(self._filled())

    @property
    def pattern(self) -> Query:
        return self._template.query

    @property
    def refreshes_on(self) -> bool:
        return bool(self._template.query.triggers)

    @property
    def several(self) -> bool:
        """Whether the queries have several predicates each."""
        return len(self._template.query.legs) > 1

    def forms(self) -> set[str]:
        return {self._at_once[0]} if self._at_once else {query_form(q) for q in self.queries()}

    def keys(self) -> Sequence[str]:
        return self._at_once[1] if self._at_once else [q.predicate_keys[0] for q in self.queries()]

    def queries(self) -> Sequence[Query]:
        if self._queries is None:
            self._queries = list(self._filled())
        return self._queries

    def _filled(self) -> Iterator[Query]:
        names = list(self._columns)
        for place in range(len(self.places)):
            yield self._template.fill({name: self._columns[name][place] for name in names})


def _templates(
    text: str, parsed: exp.Expr, lookup: Lookup, names: Names | None, rows: Mapping[Types, Places]
) -> Iterator[tuple[Template, Places]]:
    """Yield the template of all rows whose values have the same kinds, or one for each combination
    of their types; each with the places of its rows."""
    for number, (types, places) in enumerate(rows.items()):
        template = bind_template(text, parsed, lookup, dict(types), names)
        # Rows that differ only in the precision of DECIMALs can share the first template.
        if number == 0 and len(rows) > 1 and (loose := template.for_any_decimal()) is not None:
            yield loose, [place for same in rows.values() for place in same]
            return
        yield template, places


def _grouped(columns: ValueColumns, count: int) -> Iterable[Mapping[Types, Places]]:
    """Return the places of rows by the types of their values, for each combination of kinds."""
    rows: defaultdict[tuple[Type | None, ...], Places] = defaultdict(list)
    types = [_types(name, values) for name, values in columns.items()]
    # Usually all rows have the same types: counting is far faster than grouping.
    if count and all(column.count(column[0]) == count for column in types):
        rows[tuple([column[0] for column in types])] = list(range(count))
    else:
        for place, row in enumerate(zip(*types, strict=True)):
            rows[row].append(place)
    groups: defaultdict[Hashable, dict[Types, Places]] = defaultdict(dict)
    for row, places in rows.items():
        kinds = tuple([type_ and type_.kind for type_ in row])
        groups[kinds][tuple(zip(columns, row, strict=True))] = places
    return groups.values()


def _types(name: str, values: Sequence[Scalar]) -> Sequence[Type | None]:
    kinds = set(map(type, values))
    if len(kinds) == 1 and kinds <= _PLAIN:
        return [infer(values[0], name)] * len(values)
    return [infer(value, name) for value in values]
