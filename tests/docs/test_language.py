"""docs/reference/language.md and README.md: every SQL text is bound, or refused as shown."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import itertools
import re
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.instants import SECOND, from_micros
from datastem.schema import Column, StreamSchema
from datastem.types import Type, decimal_type
from querystem.expressions import Scalar
from querystem.kernel import evaluate
from querystem.language import (
    AddColumn,
    AlterStream,
    CreateFunction,
    CreatePolicy,
    CreateStream,
    CreateView,
    DropFunction,
    DropStream,
    DropView,
    EraseRows,
    Named,
    QueryError,
    SetRetain,
    bind_erase,
    bind_function_definition,
    bind_policy,
    bind_query,
    bind_view,
    bind_window,
    parse_statement,
)
from querystem.user_functions import FunctionDefinition
from querystem.views import ViewDefinition
from querystem.zones import with_zones
from tests.oracle.refresh import Event, History
from tests.oracle.zoned import machine_zones_of
from tests.support.docs.markdown import ROOT, blocks, code, read, table
from tests.support.docs.refreshes import batches_of, refreshes

PAGE = read("docs/reference/language.md")
# What `:name` stands for in the examples.
VALUES: dict[str, Scalar] = {"symbol": "IBM", "least": 184.5, "since": "2026-11-16", "top": 10}


class Catalog:
    """The streams and views a page has created so far."""

    def __init__(self) -> None:
        self.schemas: dict[str, StreamSchema] = {}
        self.views: dict[str, ViewDefinition | FunctionDefinition] = {}

    def lookup(self, name: str) -> Named | None:
        return self.schemas.get(name) or self.views.get(name)

    def run(self, text: str) -> None:
        """Bind one statement; a definition holds for those after it."""
        if re.match(r"\s*(--[^\n]*\s+)*(SELECT|WITH)\b", text, re.IGNORECASE):
            names = set(re.findall(r":([a-z]+)", text))
            bind_query(text, self.lookup, {name: VALUES[name] for name in sorted(names)})
            return
        statement = parse_statement(text)
        match statement:
            case CreateStream(schema):
                self.schemas[schema.name] = schema
            case CreateView():
                self.views[statement.name] = bind_view(text, statement, self.lookup)
            case CreateFunction():
                self.views[statement.name] = bind_function_definition(text, statement, self.lookup)
            case CreatePolicy():
                bind_policy(text, statement, self.lookup)
            case EraseRows():
                bind_erase(text, statement, self.lookup)
            case AlterStream(name, _, AddColumn(column)):
                schema = self.schemas[name]
                column = dataclasses.replace(column, since=1)
                self.schemas[name] = dataclasses.replace(schema, columns=(*schema.columns, column))
            case AlterStream(name, _, SetRetain(retain)):
                self.schemas[name] = dataclasses.replace(self.schemas[name], retain=retain)
            case DropStream(name):
                del self.schemas[name]
            case DropView(name) | DropFunction(name):
                del self.views[name]


def statements(text: str) -> list[str]:
    """Return each with the comment that follows its semicolon."""
    parts = re.findall(r"(.*?;[^\n]*)(?:\n|\Z)|(\S.*)\Z", text, re.DOTALL)
    return [ended or open_ for ended, open_ in parts]


@cache
def catalog_of(page: str) -> Catalog:
    """Return what a page's examples define; run further statements on a copy of it."""
    catalog = Catalog()
    for block in blocks(page, "sql"):
        if not block.words:
            for text in statements(block.text):
                catalog.run(text)
    return catalog


@pytest.mark.parametrize("page", ["docs/reference/language.md", "README.md"])
def test_every_example_is_accepted(page: str) -> None:
    if not (ROOT / page).exists():
        pytest.skip(f"{page} is not written yet")
    catalog_of(read(page))


REFUSED = [
    text
    for block in blocks(PAGE, "sql")
    if block.words == "refused"
    for text in statements(block.text)
]


@pytest.mark.parametrize("text", REFUSED)
def test_every_refusal_is_refused_for_its_reason(text: str) -> None:
    statement, _, reason = text.partition("--")
    with pytest.raises(QueryError) as refused:
        copy.deepcopy(catalog_of(PAGE)).run(statement.strip())
    assert refused.value.reason == reason.strip()
    assert refused.value.line == 1


@pytest.mark.parametrize("cell", [row[0] for row in table(PAGE, "written", "rows in the answer")])
def test_every_window_is_one(cell: str) -> None:
    bind_window(code(cell), catalog_of(PAGE).schemas["trades"])


@pytest.mark.parametrize(
    ("expression", "value"),
    [(code(row[0]), code(row[1])) for row in table(PAGE, "expression", "value")],
)
def test_every_value_is_computed(expression: str, value: str) -> None:
    query = bind_query(f"SELECT {expression} AS x FROM doors", catalog_of(PAGE).schemas.get)
    query = with_zones(query, machine_zones_of())
    doors = pa.record_batch({"door": ["a"], "open": [True]})
    assert value_text(evaluate(query.outputs[0].expression, doors)[0].as_py()) == value


@pytest.mark.parametrize(
    ("expression", "type_"),
    [(code(row[0]), code(row[1])) for row in table(PAGE, "expression", "type")],
)
def test_every_type_is_that_of_its_expression(expression: str, type_: str) -> None:
    query = bind_query(f"SELECT {expression} AS x FROM doors", catalog_of(PAGE).schemas.get)
    assert str(query.outputs[0].expression.type) == type_


DECIMALS = st.integers(1, 38).flatmap(
    lambda precision: st.integers(0, precision).map(lambda scale: decimal_type(precision, scale))
)


@given(DECIMALS, DECIMALS)
def test_decimal_arithmetic_has_the_types_of_the_table(x: Type, y: Type) -> None:
    """The rules of the table under DECIMAL arithmetic, in its letters."""
    p, s, q, t = x.precision, x.scale, y.precision, y.scale
    w, m, c = max(p - s, q - t), min(p - s, q - t), max(s, t)
    expected = {
        "x + y": (w + c + 1, c),
        "x - y": (w + c + 1, c),
        "x * y": (p + q, s + t) if s + t <= 38 and p + q <= 75 else None,
        "x / y": (38, max(6, c)),
        "x % y": (max(1, m + c), c),
        "coalesce(x, y)": (w + c, c) if w + c <= 38 else None,
        "nullif(x, y)": (w + c, c) if w + c <= 38 else None,
        "CASE WHEN TRUE THEN x ELSE y END": (w + c, c) if w + c <= 38 else None,
        "round(x, 2)": (p - s + min(s, 2) + 1, min(s, 2)),
        "floor(x)": (p - s + 1, 0),
        "ceil(y)": (q - t + 1, 0),
    }
    schema = StreamSchema("s", (Column("x", x), Column("y", y)))
    for expression, numbers in expected.items():
        try:
            query = bind_query(f"SELECT {expression} AS z FROM s", {"s": schema}.get)
        except QueryError:
            assert numbers is None, expression
        else:
            assert numbers is not None, expression
            assert query.outputs[0].expression.type == decimal_type(min(38, numbers[0]), numbers[1])


@pytest.mark.parametrize("blank", ["\t", "\n", "\u00a0", "\u2003"])
def test_trim_takes_blanks_and_nothing_else(blank: str) -> None:
    query = bind_query("SELECT trim(door) AS x FROM doors", catalog_of(PAGE).schemas.get)
    doors = pa.record_batch({"door": [f"  {blank} x{blank}  "], "open": [True]})
    assert evaluate(query.outputs[0].expression, doors)[0].as_py() == f"{blank} x{blank}"


@pytest.mark.parametrize(("sql", "rows", "answer", "point"), refreshes(PAGE))
def test_every_refresh_is_computed(sql: str, rows: str, answer: str, point: str) -> None:
    schemas, events, ids = catalog_of(PAGE).schemas, [], itertools.count()
    for place, batch in enumerate(batches_of(rows)):
        found = [
            {"at": from_micros(ts * SECOND), "level": level, "ts": ts * SECOND, "row_id": next(ids)}
            for ts, level in batch
        ]
        events.append(Event("alarms", place, found, max(ts for ts, _ in batch) * SECOND))
    refreshed = History(schemas, events, 0).ask(bind_query(sql, schemas.get))
    seconds = [from_micros(int(second) * SECOND) for second in answer.split(",") if second]
    assert (refreshed.answer, refreshed.instant) == (
        [(second,) for second in seconds],
        int(point) * SECOND,
    )


def value_text(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case float():
            return repr(value).replace("inf", "Infinity").replace("nan", "NaN")
        case str():
            return f"'{value}'"
        case datetime.datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
        case int() | decimal.Decimal():
            return str(value)
    raise AssertionError(f"no way to show {value!r}")
