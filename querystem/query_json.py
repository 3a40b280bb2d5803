"""Bound queries as JSON: the form in which registrations keep them.

The predicates of a query's legs are kept apart from it, because equal ones are shared: the *form*
of a query is everything else. A leg that is a query's whole source is written beside its other
parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

from querystem.expressions import TRUE, Op, from_json, to_json
from querystem.grouping import grouping_from_json, grouping_to_json
from querystem.legs import AsOf, Leg
from querystem.query import Item, Output, Query, SortKey, Source
from querystem.refresh import Refresh, RefreshEvery, refresh_from_json, refresh_to_json
from querystem.sources import From, LeftJoin, SetOperation, SetOperator, SubQuery, SubQueryKind
from querystem.validity import ValidWindow
from results.window import TimeWindow, window_from_json, window_to_json


def query_form(query: Query) -> str:
    """Return the query without the predicates of its legs, as text; it is cached on the query."""
    form: str | None = query.__dict__.get(_FORM_ATTRIBUTE)
    if form is None:
        form = json.dumps(_query_json(query, predicates=False), separators=(",", ":"))
        query.__dict__[_FORM_ATTRIBUTE] = form
    return form


def read_form(form: str, predicate_keys: Sequence[str]) -> Query:
    """Return the query of which these are the form and the keys of its legs' predicates."""
    return _query(json.loads(form), iter([json.loads(key) for key in predicate_keys]))


def read_shape(form: str) -> Query:
    """Return the query of a form as if every row matched: what its windows and refresh points
    say."""
    return _query(json.loads(form), repeat(to_json(TRUE)))


def query_to_json(query: Query) -> dict[str, Any]:
    return _query_json(query, predicates=True)


def query_from_json(form: Mapping[str, Any]) -> Query:
    return _query(form, iter(()))


_FORM_ATTRIBUTE = "query_form"


# ---- writing


def _query_json(query: Query, predicates: bool) -> dict[str, Any]:
    source = query.source
    if isinstance(source, Leg):
        form = _leg_json(source, predicates)
    else:
        form = _from_json(source, predicates)
    grouping = None if query.grouping is None else grouping_to_json(query.grouping)
    form |= {
        "outputs": [[output.name, to_json(output.expression)] for output in query.outputs],
        "grouping": grouping,
        "having": to_json(query.having),
        "distinct": query.distinct,
        "order_by": [
            [to_json(key.expression), key.descending, key.nulls_first] for key in query.order_by
        ],
        "limit": query.limit,
        "offset": query.offset,
        "refresh": refresh_to_json(query.refresh),
    }
    if query.over is not None:
        form["over"] = window_to_json(query.over)
    if query.view:
        form |= {"view": query.view, "open": query.open}
    return form


def _leg_json(leg: Leg, predicates: bool) -> dict[str, Any]:
    where = {"where": to_json(leg.where)} if predicates else {}
    own = {"own": True} if leg.has_own_window else {}
    as_of = {} if leg.as_of is None else {"as_of": _as_of_json(leg.as_of)}
    view = {"leg_view": leg.view} if leg.view else {}
    when = {} if leg.moment == TRUE else {"when": to_json(leg.moment)}
    valid = {} if leg.valid is None else {"valid": _valid_json(leg.valid)}
    window = {"window": window_to_json(leg.window), **own, **as_of, **view, **when, **valid}
    return {"stream": leg.stream, **where, **window, **_leg_refresh_json(leg.refresh)}


def _valid_json(valid: ValidWindow) -> list[Any]:
    return [valid.starts, valid.ends, window_to_json(valid.window), valid.retain]


def _leg_refresh_json(refresh: Refresh | None) -> dict[str, Any]:
    match refresh:
        case None:
            return {}
        case RefreshEvery(period, 0):
            return {"leg_period": period}
        case _:
            return {"leg_refresh": refresh_to_json(refresh)}


def _as_of_json(as_of: AsOf) -> dict[str, Any]:
    return {
        "instant": to_json(as_of.instant),
        "keys": [to_json(key) for key in as_of.keys],
        "row": None if as_of.row is None else to_json(as_of.row),
        "stream": as_of.stream,
    }


def _from_json(source: From, predicates: bool) -> dict[str, Any]:
    items = [_item_json(item, predicates) for item in source.items]
    form = {"from": items, "on": to_json(source.on)}
    if source.subqueries:
        form["subqueries"] = [
            _subquery_json(subquery, predicates) for subquery in source.subqueries
        ]
    if source.where != TRUE:
        form["where_all"] = to_json(source.where)
    return form


def _subquery_json(subquery: SubQuery, predicates: bool) -> dict[str, Any]:
    operand, op = subquery.operand, subquery.op
    form: dict[str, Any] = {}
    if subquery.grouping is not None and subquery.value is not None:
        form["grouping"] = grouping_to_json(subquery.grouping)
        form["value"] = to_json(subquery.value)
    return form | {
        "kind": subquery.kind.value,
        "query": _query_json(subquery.query, predicates),
        "on": to_json(subquery.on),
        "operand": None if operand is None else to_json(operand),
        "op": None if op is None else op.value,
    }


def _item_json(item: Item, predicates: bool) -> dict[str, Any]:
    match item:
        case Leg():
            return {"leg": _leg_json(item, predicates)}
        case LeftJoin(left_side, right_side, on):
            sides = {
                "left": _from_json(left_side, predicates),
                "right": _item_json(right_side, predicates),
            }
            return {**sides, "left_on": to_json(on)}
        case Query():
            return {"query": _query_json(item, predicates)}
        case SetOperation(operator, queries):
            forms = [_query_json(query, predicates) for query in queries]
            view = {"view": item.view} if item.view else {}
            return {"set": operator.value, "queries": forms, **view}


# ---- reading


def _query(form: Mapping[str, Any], predicates: Iterator[list[Any]]) -> Query:
    """Read a query; `predicates` are those of its legs that the form leaves out."""
    grouping, over = form["grouping"], form.get("over")
    return Query(
        source=_source(form, predicates),
        outputs=tuple(Output(name, from_json(expr)) for name, expr in form["outputs"]),
        grouping=None if grouping is None else grouping_from_json(grouping),
        having=from_json(form["having"]),
        distinct=form["distinct"],
        order_by=tuple(SortKey(from_json(key[0]), key[1], key[2]) for key in form["order_by"]),
        limit=form["limit"],
        offset=form["offset"],
        refresh=refresh_from_json(form["refresh"]),
        over=None if over is None else window_from_json(over),
        view=form.get("view", ""),
        open=form.get("open", False),
    )


def _source(form: Mapping[str, Any], predicates: Iterator[list[Any]]) -> Source:
    return _leg(form, predicates) if "stream" in form else _from(form, predicates)


def _from(form: Mapping[str, Any], predicates: Iterator[list[Any]]) -> From:
    items = tuple(_item(item, predicates) for item in form["from"])
    on = from_json(form["on"])
    subqueries = tuple(_subquery(part, predicates) for part in form.get("subqueries", ()))
    where = from_json(form["where_all"]) if "where_all" in form else TRUE
    return From(items, on, subqueries, where)


def _subquery(form: Mapping[str, Any], predicates: Iterator[list[Any]]) -> SubQuery:
    operand, op = form["operand"], form["op"]
    return SubQuery(
        SubQueryKind(form["kind"]),
        _query(form["query"], predicates),
        from_json(form["on"]),
        None if operand is None else from_json(operand),
        None if op is None else Op(op),
        grouping_from_json(form["grouping"]) if "grouping" in form else None,
        from_json(form["value"]) if "value" in form else None,
    )


def _leg(form: Mapping[str, Any], predicates: Iterator[list[Any]]) -> Leg:
    where = form["where"] if "where" in form else next(predicates)
    window, has_own_window = window_from_json(form["window"]), form.get("own", False)
    as_of = _as_of(form["as_of"]) if "as_of" in form else None
    refresh = refresh_from_json(form.get("leg_refresh"))
    if "leg_period" in form:
        refresh = RefreshEvery(form["leg_period"])
    view, moment = form.get("leg_view", ""), from_json(form["when"]) if "when" in form else TRUE
    valid = _valid(form["valid"]) if "valid" in form else None
    own = has_own_window, as_of, refresh, view, moment, valid
    return Leg(form["stream"], from_json(where), window, *own)


def _valid(form: list[Any]) -> ValidWindow:
    starts, ends, written, retain = form
    window = window_from_json(written)
    assert isinstance(window, TimeWindow), "other windows over validities are refused"
    return ValidWindow(starts, ends, window, retain)


def _as_of(form: Mapping[str, Any]) -> AsOf:
    keys = tuple(from_json(key) for key in form["keys"])
    row = None if form["row"] is None else from_json(form["row"])
    return AsOf(from_json(form["instant"]), keys, row, form["stream"])


def _item(form: Mapping[str, Any], predicates: Iterator[list[Any]]) -> Item:
    if "leg" in form:
        return _leg(form["leg"], predicates)
    if "query" in form:
        return _query(form["query"], predicates)
    if "left" in form:
        left_side, right_side = _from(form["left"], predicates), _item(form["right"], predicates)
        return LeftJoin(left_side, right_side, from_json(form["left_on"]))
    queries = tuple(_query(query, predicates) for query in form["queries"])
    return SetOperation(SetOperator(form["set"]), queries, form.get("view", ""))
