"""Odd claims: whatever a credential says, a policy filled in with it can be built and probed."""

from __future__ import annotations

import json
import random
import sys

import pytest

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, BOOLEAN, DATE, DOUBLE, TEXT, TIMESTAMP, decimal_type
from psoup.access.keys import plain_claims
from querystem.expressions import Expression, predicate_key
from querystem.index.trial import try_predicate
from querystem.language import (
    CreatePolicy,
    bind_policy,
    filled_policy,
    parse_statement,
    sample_policy,
)
from querystem.language.statements.policies import ClaimValue

_SCHEMA = StreamSchema(
    "s",
    (
        Column("t", TEXT),
        Column("i", BIGINT),
        Column("d", DOUBLE),
        Column("n", decimal_type(12, 2)),
        Column("w", decimal_type(38, 10)),
        Column("b", BOOLEAN),
        Column("at", TIMESTAMP),
        Column("day", DATE),
    ),
)
_CONDITIONS = [
    *(f"{name} = claim('x')" for name in ("t", "i", "d", "n", "w", "b", "at", "day")),
    *(f"{name} >= claim('x') AND i = 3" for name in ("t", "i", "d", "n", "w", "at", "day")),
    "t LIKE claim('x')",
    "t NOT LIKE claim('x') OR t IN (claim('y'), 'a', claim('x'))",
    "i IN (claim('x'), claim('y')) AND t = claim('sub')",
    "i + claim('x') > 5 AND d * claim('y') < 1",
    "i / claim('x') > 1 OR i % claim('x') = 0",
    "ts > claim('x') AND length(t) = claim('y')",
    "lower(t) = lower(claim('x')) OR substring(t, claim('y'), 2) = claim('x')",
    "t BETWEEN claim('x') AND claim('y')",
    "CASE WHEN b THEN claim('x') ELSE t END = claim('y')",
]
_ODD: list[object] = [
    *(
        "",
        "\ud800",
        "\udfffa",
        "a\ud800\udc00",
        "\x00",
        "\x1b[2J",
        "%",
        "_",
        "\\",
        "%\\",
        "a" * 9000,
    ),
    *(
        "'",
        '"',
        "[",
        "(?P<",
        ".*+?",
        "\n",
        "\u2028",
        "é",
        "0",
        "-1",
        "1e400",
        "NaN",
        "null",
        "true",
    ),
    *("2024-02-30", "2024-01-01", "9999-12-31T23:59:59Z", "0000-00-00", "-4713-01-01", "infinity"),
    *("2024-01-01T00:00:00+99:99", "٢٠٢٤-٠١-٠١", "1969-12-31T23:59:59.9999999999Z", "24:00"),
    *(0, -0.0, 1, -1, 1 << 62, -(1 << 63), (1 << 63) - 1, 1 << 63, 10**40, 0.1, 1e308, -1e308),
    *(5e-324, sys.float_info.max, float("nan"), float("inf"), 123456789.125, True, False, None),
    *([1], {"a": 1}),
]


def _drawn(draw: random.Random) -> object:
    if draw.random() < 0.7:
        return draw.choice(_ODD)
    return "".join(chr(draw.randrange(0x11000)) for _ in range(draw.randrange(6)))


def _bound(condition: str) -> Expression:
    sql = f"CREATE POLICY p ON s USING ({condition})"
    statement = parse_statement(sql)
    assert isinstance(statement, CreatePolicy)
    return bind_policy(sql, statement, lambda name: _SCHEMA).where


@pytest.mark.parametrize("condition", _CONDITIONS)
def test_a_policy_is_sound_with_any_claims(condition: str) -> None:
    where = _bound(condition)
    try_predicate(predicate_key(sample_policy(where)), _SCHEMA.types)
    draw = random.Random(condition)
    for _ in range(60):
        visible = {name: _drawn(draw) for name in ("x", "y", "sub")}
        # As a JWT brings them: through JSON, where surrogates and NaN are at home.
        claims: dict[str, ClaimValue] = plain_claims(json.loads(json.dumps(visible)), ())
        filled = filled_policy(where, claims)
        try_predicate(predicate_key(filled), _SCHEMA.types)
