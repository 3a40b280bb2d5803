"""Texts that were refused for how they are written.

GROUP BY a > 3 AND FALSE was refused as a constant, GROUP BY a > 3 AND TRUE was not; a number beside
a DECIMAL was refused for zeros at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

ROWS = pa.table({"a": [1, 4, 9, None], "d": pa.array([Decimal("1.50")] * 4, pa.decimal128(10, 2))})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "store", "--durability", "none")
    server.define("CREATE STREAM s (a BIGINT, d DECIMAL(10,2))")
    yield server
    server.stop()


def test_one_group_of_all_rows_and_none_of_no_rows(server: ServerProcess) -> None:
    sql = "SELECT a > 3 AND FALSE AS x, count(a) AS n FROM s GROUP BY a > 3 AND FALSE"
    handle = server.register(sql).handle
    assert server.invoke(handle)[1].to_pylist() == []
    server.publish("s", ROWS)
    assert server.invoke(handle)[1].to_pylist() == [{"x": False, "n": 3}]
    ordered = server.ask("SELECT a FROM s ORDER BY a > 3 AND FALSE, a DESC NULLS LAST")[1]
    assert ordered["a"].to_pylist() == [9, 4, 1, None]


def test_zeros_past_38_digits_are_no_digits(server: ServerProcess) -> None:
    server.publish("s", ROWS)
    table = server.ask(f"SELECT count(*) AS n FROM s WHERE d = 1.5{'0' * 60}")[1]
    assert table["n"].to_pylist() == [4]
