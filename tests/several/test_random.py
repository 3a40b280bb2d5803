"""Random queries over random streams: oracle, vectorised parts and DuckDB agree."""

from __future__ import annotations

import random

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.oracle.several.chance import Drawn, Seeded
from tests.support.lengths import scaled
from tests.support.several_cases import Case, check, drawn_case

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
_SOAK, _PIECE = 20_000, 1_000


@st.composite
def cases(draw: DrawFn) -> Case:
    return drawn_case(Drawn(draw))


@settings(suppress_health_check=_SLOW)
@given(case=cases())
def test_oracle_several_drawn(duck: duckdb.DuckDBPyConnection, case: Case) -> None:
    """Few cases, but one that fails becomes small."""
    check(case, duck)


@pytest.mark.parametrize("seed", [0])
def test_oracle_several_seeded(duck: duckdb.DuckDBPyConnection, seed: int) -> None:
    _run(duck, seed, scaled(100))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 1 + _SOAK // _PIECE))
def test_oracle_several_soak(duck: duckdb.DuckDBPyConnection, seed: int) -> None:
    _run(duck, seed, _PIECE)


def _run(duck: duckdb.DuckDBPyConnection, seed: int, count: int) -> None:
    for number in range(count):
        check(drawn_case(Seeded(random.Random(f"{seed}/{number}"))), duck)
