"""Durations in expressions: how they are written, their types, and constants that are computed."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given

from datastem.instants import DAY, HOUR, MINUTE, SECOND
from datastem.types import BIGINT, DOUBLE, DURATION, TEXT, TIMESTAMP
from querystem.expressions import Call, Expression, Literal, Op, from_json, to_json
from querystem.kernel import evaluate
from querystem.language import QueryError, TypeProblem, expression_text, prepare
from querystem.language.normal_form.normal import normal
from querystem.language.tokens.durations import write_interval
from tests.oracle.expressions import expressions
from tests.querystem.language.support import TRADES, bind, lookup, show, value, where

ONE = pa.record_batch({"x": [0]})


def duration(text: str) -> Expression:
    """Return the bound form of a duration, which can't be selected."""
    compared = where(f"at - ts > {text}")
    assert isinstance(compared, Call)
    return compared.args[1]


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("INTERVAL '20.2' SECOND", 20_200_000),
        ("interval '1' hour", HOUR),
        ("INTERVAL '1.5 hours'", 90 * MINUTE),
        ("INTERVAL 2 MINUTES", 2 * MINUTE),
        ("INTERVAL '30'", 30 * SECOND),
        ("INTERVAL '-5' MINUTE", -5 * MINUTE),
        ("INTERVAL ' -1.5 days '", -36 * HOUR),
        ("- INTERVAL '5' MINUTE", -5 * MINUTE),
        ("+ INTERVAL '5' MINUTE", 5 * MINUTE),
        ("INTERVAL /* one */ '1' -- a\n WEEK", 7 * DAY),
        ("INTERVAL '-9223372036854775808' MICROSECOND", -(2**63)),
        ("INTERVAL '1' HOUR + INTERVAL '1' MINUTE", HOUR + MINUTE),
        ("INTERVAL '1' HOUR - INTERVAL '90' MINUTE", -HOUR // 2),
        ("INTERVAL '1' MINUTE * 1.5", 90 * SECOND),
        ("2 * INTERVAL '1' MINUTE", 2 * MINUTE),
        ("INTERVAL '1' MICROSECOND * -0.5", -1),
        ("INTERVAL '1' MICROSECOND * CAST(2.5 AS DECIMAL(2,1))", 3),
        ("TIMESTAMP '2026-11-16' - DATE '2026-11-15'", DAY),
        ("TIMESTAMP '2026-11-16' - '2026-11-15 23:00'", HOUR),
    ],
)
def test_a_constant(text: str, micros: int) -> None:
    assert duration(text) == Literal(micros, DURATION)
    assert duration(write_interval(micros)) == Literal(micros, DURATION)


@pytest.mark.parametrize(
    "text",
    [
        "INTERVAL '9223372036854775807' MICROSECOND + INTERVAL '1' MICROSECOND",
        "-INTERVAL '9223372036854775807' MICROSECOND - INTERVAL '2' MICROSECOND",
        "INTERVAL '1' DAY * 9223372036854775807",
        "INTERVAL '1' DAY * 1e300",
        "INTERVAL '1' DAY * CAST('NaN' AS DOUBLE)",
        "INTERVAL '1' DAY * NULL",
        "NULL - INTERVAL '1' DAY",
    ],
)
def test_a_constant_that_can_not_be_computed_is_null(text: str) -> None:
    assert duration(text) == Literal(None, DURATION)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("TIMESTAMP '2026-11-16' + INTERVAL '1' DAY", datetime(2026, 11, 17, tzinfo=UTC)),
        ("INTERVAL '-1' DAY + DATE '2026-11-16'", datetime(2026, 11, 15, tzinfo=UTC)),
        ("'2026-11-16' - INTERVAL '1' DAY", datetime(2026, 11, 15, tzinfo=UTC)),
        ("TIMESTAMP '9999-12-31' + INTERVAL '1' DAY", None),
        ("TIMESTAMP '0001-01-01' - INTERVAL '1' MICROSECOND", None),
        ("TIMESTAMP '2026-11-16' + NULL", None),
    ],
)
def test_a_constant_instant(text: str, instant: datetime | None) -> None:
    assert value(text) == Literal(instant, TIMESTAMP)


SAMPLES = {"symbol": "TEXT", "price": "number", "size": "number", "amount": "number",
           "at": "instant", "day": "instant", "ok": "BOOLEAN", "(at - ts)": "duration"}  # fmt: skip
MEANINGS = {
    ("instant", "+", "duration"): "TIMESTAMP",
    ("duration", "+", "instant"): "TIMESTAMP",
    ("instant", "-", "duration"): "TIMESTAMP",
    ("instant", "-", "instant"): "DURATION",
    ("duration", "+", "duration"): "DURATION",
    ("duration", "-", "duration"): "DURATION",
    ("duration", "*", "number"): "DURATION",
    ("number", "*", "duration"): "DURATION",
}


@pytest.mark.parametrize(("lhs", "rhs"), list(itertools.product(SAMPLES, SAMPLES)))
def test_what_may_be_computed(lhs: str, rhs: str) -> None:
    times = {"instant", "duration"}
    if not {SAMPLES[lhs], SAMPLES[rhs]} & times:
        return
    for operator in ("+", "-", "*", "/", "%", "div"):
        meaning = MEANINGS.get((SAMPLES[lhs], operator, SAMPLES[rhs]))
        if meaning is None:
            with pytest.raises(TypeProblem, match="has no meaning"):
                where(f"{lhs} {operator} {rhs} IS NULL")
            continue
        condition = where(f"{lhs} {operator} {rhs} IS NULL")
        assert isinstance(condition, Call)
        assert str(condition.args[0].type) == meaning
        assert from_json(json.loads(json.dumps(to_json(condition)))) == condition
        assert where(expression_text(condition)) == condition
        assert evaluate(condition, bound_rows()).to_pylist() == [True]


def bound_rows() -> pa.RecordBatch:
    columns = {name: pa.array([None], type_.arrow) for name, type_ in TRADES.types.items()}
    return pa.record_batch(columns)


@pytest.mark.parametrize(
    "condition",
    [
        "at - ts BETWEEN INTERVAL '1' HOUR AND INTERVAL '2' HOUR",
        "at - ts IN (INTERVAL '1' HOUR, INTERVAL '2' HOUR, NULL)",
        "at - ts IS DISTINCT FROM NULL",
        "CASE WHEN ok THEN at - ts ELSE INTERVAL '1' HOUR END > INTERVAL '0' SECOND",
        "coalesce(at - ts, INTERVAL '1' HOUR) = nullif(at - day, INTERVAL '0' SECOND)",
        "abs(at - ts) * price < -(at - day)",
        "extract(hour FROM at - ts) > 1 AND extract('week', at - ts) < 1.5",
        "at > ts - INTERVAL '1' HOUR OR day + INTERVAL '1' DAY < at",
    ],
)
def test_conditions(condition: str) -> None:
    bound = where(condition)
    assert where(show(bound)) == bound
    assert where(expression_text(bound)) == bound
    assert evaluate(bound, bound_rows()).type == pa.bool_()


def test_equal_conditions_have_one_normal_form() -> None:
    forms = [
        "at > ts + INTERVAL '90' MINUTE",
        "INTERVAL '1.5' HOUR + ts < at",
        "ts + INTERVAL '1' HOUR * 1.5 < at",
        "NOT at <= ts + INTERVAL '0.5' HOUR * 3",
    ]
    assert len({json.dumps(to_json(where(form))) for form in forms}) == 1


TIMES = {"at": TIMESTAMP, "since": TIMESTAMP, "n": BIGINT, "x": DOUBLE, "t": TEXT}


@given(expressions(TIMES, DURATION, without=frozenset({Op.CAST, Op.NEG, Op.AT_TIME_ZONE})))
def test_the_normal_form_means_what_was_written(expression: Expression) -> None:
    form = normal(expression)
    assert normal(form) == form
    batch = pa.record_batch({name: pa.array([None, None], t.arrow) for name, t in TIMES.items()})
    assert evaluate(form, batch).equals(evaluate(expression, batch))


@given(
    expressions({}, DURATION, 0), expressions({}, DURATION, 0),
    expressions({}, TIMESTAMP, 0), expressions({}, DOUBLE, 0), expressions({}, BIGINT, 0),
)  # fmt: skip
def test_folding_is_the_kernels(
    a: Expression, b: Expression, at: Expression, x: Expression, n: Expression
) -> None:
    for op, args, type_ in [
        (Op.ADD, (a, b), DURATION),
        (Op.SUB, (a, b), DURATION),
        (Op.MUL, (a, x), DURATION),
        (Op.MUL, (a, n), DURATION),
        (Op.ADD, (at, a), TIMESTAMP),
        (Op.SUB, (at, a), TIMESTAMP),
        (Op.SUB, (at, at), DURATION),
        (Op.NEG, (b,), DURATION),
    ]:
        call = Call(op, args, type_)
        folded = normal(call)
        assert isinstance(folded, Literal) or args == (Literal(-(2**63), DURATION),)
        assert evaluate(folded, ONE).equals(evaluate(call, ONE))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT at - ts AS x FROM trades",
        "SELECT DISTINCT at - ts AS x FROM trades",
        "SELECT INTERVAL '1' DAY AS x FROM trades",
        "SELECT max(at - ts) AS x FROM trades",
        "SELECT count(*) AS n FROM trades GROUP BY at - ts",
        "SELECT at - ts AS x FROM trades GROUP BY x",
        "SELECT at - ts AS x FROM trades GROUP BY 1",
        "SELECT sum(at - ts) AS x FROM trades",
        "SELECT CAST(at - ts AS TEXT) AS x FROM trades",
        "SELECT CAST(size AS DURATION) AS x FROM trades",
        "SELECT round(at - ts) AS x FROM trades",
        "SELECT price FROM trades WHERE at - ts > 5",
    ],
)
def test_a_duration_is_no_column(text: str) -> None:
    with pytest.raises(TypeProblem) as caught:
        bind(text)
    assert "extract(second FROM duration)" in caught.value.hint


def test_a_duration_may_be_aggregated_and_ordered_by() -> None:
    query = bind(
        "SELECT symbol, extract(second FROM max(at - day)) AS x, count(DISTINCT at - day) AS n"
        " FROM trades GROUP BY symbol HAVING min(at - day) > INTERVAL '1' HOUR"
        " ORDER BY last(at - day) DESC"
    )
    assert [str(column.type) for column in query.columns] == ["TEXT", "DOUBLE", "BIGINT"]


def test_parameters_are_instants_and_numbers() -> None:
    moment = datetime(2026, 11, 16, 9, tzinfo=UTC)
    later = Literal(moment + timedelta(minutes=5), TIMESTAMP)
    for given_ in (moment, "2026-11-16 09:00"):
        filled = where("at > :t + INTERVAL '5' MINUTE", t=given_)
        assert filled == where("at > '2026-11-16 09:05'")
        assert isinstance(filled, Call) and filled.args[1] == later
        assert where("at - :t > INTERVAL '5' MINUTE", t=given_) == where(
            "at - TIMESTAMP '2026-11-16 09:00' > INTERVAL '5' MINUTE"
        )
    assert where("at - ts > :n * INTERVAL '1' SECOND", n=1.5) == where(
        "at - ts > INTERVAL '1500' MILLISECOND"
    )
    assert where("at - ts > :n * INTERVAL '1' SECOND", n=None) == where(
        "at - ts > NULL * INTERVAL '1' SECOND"
    )


def test_no_parameter_is_a_duration() -> None:
    with pytest.raises(QueryError, match="timedelta") as caught:
        where("at - ts > :d", d=timedelta(minutes=5))  # type: ignore[arg-type]
    assert ":n * INTERVAL '1' SECOND" in caught.value.hint
    template = prepare("SELECT price FROM trades WHERE at - ts > :d", lookup, {"d": DURATION})
    with pytest.raises(TypeProblem, match="is DURATION"):
        template.fill({"d": 5})


def test_a_day_is_its_midnight() -> None:
    assert where("day - INTERVAL '1' HOUR > at") == where(
        "CAST(day AS TIMESTAMP) - INTERVAL '1' HOUR > at"
    )
    assert where("day - '2026-11-01' > INTERVAL '1' DAY") == where(
        "CAST(day AS TIMESTAMP) - TIMESTAMP '2026-11-01' > INTERVAL '1' DAY"
    )
