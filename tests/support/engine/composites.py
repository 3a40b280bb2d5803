"""Joins as a server registers them, and what their tables must say, found without the engine."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from datastem.types import BIGINT, BOOLEAN, Type
from psoup.store import Epoch, LegPredicate, Register, Store
from psoup.store.composite_marks import CompositeMark
from psoup.store.log.events import Composite
from querystem.composites import Shape
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Literal, Op, predicate_key
from querystem.language.normal_form.rewrite import all_of, as_item
from querystem.legs import Leg
from querystem.query import Query
from querystem.query_json import query_to_json
from querystem.sources import From
from results.window import UNBOUNDED
from tests.support.engine.author import Author
from tests.support.engine.reading import covered, matched


def equal(first: int, second: int, column: str = "sensor", type_: Type = BIGINT) -> Call:
    """left.column = right.column"""
    sides = (ColumnRef(f"{first}.{column}", type_), ColumnRef(f"{second}.{column}", type_))
    return Call(Op.EQ, sides, BOOLEAN)


def less(first: int, second: int) -> Expression:
    """left.sensor < right.sensor"""
    return Call(Op.LT, equal(first, second).args, BOOLEAN)


def near(first: int, second: int) -> list[Expression]:
    """right.sensor <= left.sensor AND left.sensor < right.sensor + 2"""
    lhs, rhs = equal(first, second).args
    above = Call(Op.ADD, (rhs, Literal(2, BIGINT)), BIGINT)
    return [Call(Op.LE, (rhs, lhs), BOOLEAN), Call(Op.LT, (lhs, above), BOOLEAN)]


def either(first: Expression, second: Expression) -> Expression:
    return Call(Op.OR, (first, second), BOOLEAN)


@dataclass(frozen=True)
class Joined:
    """A registered join: its handle, its composite, the predicates of its legs and over it."""

    handle: bytes
    composite_id: int
    legs: tuple[int, ...]
    predicate_id: int


def register_join(
    author: Author,
    legs: Sequence[tuple[int, Expression]],
    factors: Sequence[Expression],
    span: int | None = None,
    where: Expression = TRUE,
) -> Joined:
    """Register a join whose legs, (stream, predicate), are in the composite's order. `where` is the
    condition over combinations, besides those of the legs."""
    state = author.state
    where = all_of([where, *(as_item(local, leg) for leg, (_, local) in enumerate(legs))])
    streams = tuple(stream for stream, _ in legs)
    key = Shape(streams, tuple(factors), span).factors_key
    existing = state.composites.find(streams, key, span)
    composite_id = author.new_id() if existing is None else existing
    next_id, predicate_ids = state.next_predicate_id, dict[tuple[int, str], int]()
    for stream, text in [(s, predicate_key(w)) for s, w in legs] + [
        (composite_id, predicate_key(where))
    ]:
        predicate_id = state.predicates.find(stream, text)
        if (stream, text) not in predicate_ids:
            predicate_ids[stream, text] = next_id if predicate_id is None else predicate_id
            next_id += predicate_id is None
    names = [state.streams[stream].schema.name for stream in streams]
    query = Query(From(tuple(Leg(name, TRUE, UNBOUNDED) for name in names)), ())
    handle = secrets.token_bytes(16)
    leg_predicates = tuple(
        LegPredicate(stream, predicate_ids[stream, predicate_key(w)], predicate_key(w))
        for stream, w in legs
    )
    over_composite = predicate_ids[composite_id, predicate_key(where)]
    composite = Composite(composite_id, streams, key, span, over_composite, predicate_key(where))
    form = json.dumps(query_to_json(query))
    author.append(Register(handle, "", leg_predicates, "", "{}", form, 0, (), composite))
    return Joined(
        handle, composite_id, tuple(leg.predicate_id for leg in leg_predicates), over_composite
    )


def mark_of(store: Store, composite_id: int) -> CompositeMark:
    return _epoch(store).composites[composite_id]


def combinations(store: Store, composite_id: int) -> dict[int, tuple[int, ...]]:
    """Return the parts of every stored combination by its id, checked by docs/reference/formats."""
    mark = mark_of(store, composite_id)
    table = _table(store, f"stems/{composite_id}", mark.version)
    rows = table.to_pylist()
    parts_by_id = {}
    for row in rows:
        parts = tuple(row[f"_part{leg}"] for leg in range(len(mark.highs)))
        assert 0 <= row["_row_id"] < mark.high and row["_row_id"] not in parts_by_id
        assert mark.since is not None and parts[0] >= mark.since
        assert all(part < high for part, high in zip(parts, mark.highs, strict=True))
        parts_by_id[row["_row_id"]] = parts
    return parts_by_id


def join_of(
    store: Store, composite_id: int, *, admitted: bool = True
) -> dict[tuple[int, ...], dict[str, Any]]:
    """Return the combinations of the rows in a composite's box, by their parts: of those that the
    local predicates of a query match whose combinations are all stored, or of all. Found by
    DuckDB."""
    epoch = _epoch(store)
    mark, state = epoch.composites[composite_id], store.state(epoch)
    composite = state.composites[composite_id]
    if mark.since is None:
        return {}
    with duckdb.connect() as db:
        for leg, stream in enumerate(composite.legs):
            rows = _table(store, f"stems/{stream}", epoch.streams[stream].version)
            low = mark.since if leg == 0 else 0
            db.register(f"all{leg}", rows)
            ids = {
                row_id for predicate in mark.admitted[leg] for row_id in matched(store, predicate)
            }
            db.register(f"in{leg}", pa.table({"id": pa.array(sorted(ids), pa.int64())}))
            inside = f"AND _row_id IN (SELECT id FROM in{leg})" if admitted else "AND _op = 0"
            db.execute(
                f"CREATE TABLE leg{leg} AS SELECT * FROM all{leg} "
                f"WHERE _row_id >= {low} AND _row_id < {mark.highs[leg]} {inside}"
            )
        joined = _joined(db, composite.factors, composite.span, len(composite.legs))
    if not admitted:
        return joined
    # By query: the rows of each leg that its local predicate matches.
    groups = [
        [set(matched(store, leg.predicate_id)) for leg in registration.legs]
        for registration in state.registrations.values()
        if registration.composite is not None
        and registration.composite.composite_id == composite_id
        and mark.has_predicate(registration.composite.predicate_id)
    ]
    return {
        parts: values
        for parts, values in joined.items()
        if any(
            all(part in rows for part, rows in zip(parts, group, strict=True)) for group in groups
        )
    }


def _joined(
    db: duckdb.DuckDBPyConnection, factors: str, span: int | None, legs: int
) -> dict[tuple[int, ...], dict[str, Any]]:
    names = [f"leg{leg}" for leg in range(legs)]
    conditions = [_sql(factor) for factor in json.loads(factors)]
    ts = ", ".join(f"epoch_us({name}._ts)" for name in names)
    if span is not None:
        conditions.append(f"greatest({ts}) - least({ts}) <= {span}")
    parts = ", ".join(f"{name}._row_id" for name in names)
    positions = ", ".join(f"{name}._position" for name in names)
    joined = db.execute(
        f"SELECT {parts}, least({ts}), greatest({ts}), greatest({positions}) "
        f"FROM {', '.join(names)} WHERE {' AND '.join(conditions)}"
    ).fetchall()
    return {
        tuple(row[:legs]): {"ts": row[legs], "until": row[legs + 1], "position": row[legs + 2]}
        for row in joined
    }


def _sql(form: Any) -> str:
    """Return a condition over columns of legs as SQL, from its JSON form."""
    if form[0] == "col":
        leg, _, column = form[2].partition(".")
        return f'leg{leg}."{column}"'
    if form[0] == "lit":
        return str(form[2])
    return f"({f' {form[2]} '.join(map(_sql, form[3:]))})"


def assert_boxes(store: Store, *, exact: bool = True) -> None:
    """The combinations of every composite are those of its queries in its box, each once. If
    queries have left, or are not admitted yet, there may be more."""
    for composite_id in _epoch(store).composites:
        stored = list(combinations(store, composite_id).values())
        assert len(stored) == len(set(stored)), "a combination is stored twice"
        expected = join_of(store, composite_id)
        assert expected.keys() <= set(stored), "a combination is missing"
        surplus = set(stored) - expected.keys()
        if exact:
            assert not surplus
        elif surplus:
            assert surplus <= join_of(store, composite_id, admitted=False).keys()


def assert_complete(store: Store, joined: Joined, *, exact: bool = True) -> None:
    """The box of a join is as large as can be, its predicates are admitted, and the predicate over
    combinations has met all of them."""
    mark, epoch = mark_of(store, joined.composite_id), _epoch(store)
    composite = store.state(epoch).composites[joined.composite_id]
    assert mark.since == 0
    assert mark.highs == tuple(epoch.streams[stream].high for stream in composite.legs)
    for leg, predicate in enumerate(joined.legs):
        assert predicate in mark.admitted[leg]
    assert mark.has_predicate(joined.predicate_id)
    high = mark.high
    lows = covered(store, joined.composite_id, joined.predicate_id)
    ids = combinations(store, joined.composite_id)
    if ids:
        assert lows[0][0] <= min(ids) and lows[-1][1] == high and len(lows) == 1
    assert_boxes(store, exact=exact)


def _epoch(store: Store) -> Epoch:
    return store.epochs.latest()[1]


def _table(store: Store, name: str, version: int) -> pa.Table:
    table = DeltaTable(str(store.root / name), version=version).to_pyarrow_table()
    return table
