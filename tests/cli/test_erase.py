"""psoup erase against a server in this process: keys of every type, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from psoup.cli import cli
from psoup.cli.connection import Connection
from tests.support.client_sdk.inside import InsideStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[InsideStore]:
    store = InsideStore(tmp_path)
    yield store
    store.close()


def answer(store: InsideStore, sql: str) -> list[dict[str, Any]]:
    handle = store.client.register(sql).handle
    rows: list[dict[str, Any]] = store.client.invoke(handle).to_arrow().to_pylist()
    return rows


def erase(store: InsideStore, *arguments: str, typed: str = "") -> Result:
    connection = Connection(transport=store.line)
    return CliRunner().invoke(cli, ["erase", *arguments], obj=connection, input=typed)


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        ("BIGINT", 4711, "4711"),
        ("BIGINT", -4, "id=-4"),
        ("TEXT", "O'Hara = x", "O'Hara = x"),
        ("TEXT", "", ""),
        ("DATE", date(2026, 11, 18), "2026-11-18"),
        ("BOOLEAN", True, "true"),
        ("DECIMAL(6,2)", Decimal("1.25"), "1.25"),
        ("DOUBLE", float("nan"), "NaN"),
        ("DOUBLE", float("-inf"), "-inf"),
        ("DOUBLE", 1e-7, "1e-7"),
        ("TEXT", "x" * 10_000, "x" * 10_000),
        ("TEXT", "nan", "nan"),
    ],
)
def test_keys_of_every_type(store: InsideStore, type_: str, value: Any, text: str) -> None:
    store.client.define(f"CREATE STREAM people (id {type_}, n BIGINT) KEY (id)")
    store.client.publish("people", [{"id": value, "n": 1}])
    done = erase(store, "people", "--key", text, "--yes")
    assert done.exit_code == 0 and "1 row is erased" in done.output, done.output
    assert not answer(store, "SELECT n FROM people")


def test_several_columns_standard_input_and_other_streams(store: InsideStore) -> None:
    store.client.define("CREATE STREAM visits (place TEXT, id BIGINT) KEY (place, id)")
    store.client.define("CREATE STREAM orders (person TEXT, n BIGINT)")
    store.client.publish("visits", [{"place": "A", "id": 1}, {"place": "A", "id": 2}])
    store.client.publish("orders", [{"person": name, "n": 1} for name in ("ann", "bob", "ann")])
    asked = erase(store, "visits", "--key", "place=A", "--key", "id=1", typed="n\n")
    assert asked.exit_code != 0 and len(answer(store, "SELECT id FROM visits")) == 2
    erase(store, "visits", "--key", "place=A", "--key", "id=1", "-y")
    assert [row["id"] for row in answer(store, "SELECT id FROM visits")] == [2]
    done = erase(store, "orders", "--where", "person=-", "-y", typed="ann\n")
    assert "2 rows are erased" in done.output, done.output
    assert [row["person"] for row in answer(store, "SELECT person FROM orders")] == ["bob"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("visits",), "give --key"),
        (("visits", "--key", "1"), "column=value"),
        (("visits", "--key", "place=A", "--key", "place=B"), "each column"),
        (("visits", "--where", "id=1"), "has a stream key"),
        (("orders", "--key", "1"), "no stream key"),
        (("orders", "--where", "x=1"), "no column x"),
        (("orders", "--where", "n"), "column=value"),
        (("orders", "--where", "n=secret"), "not a BIGINT"),
        (("orders", "--where", "n=nan"), "not a BIGINT"),
        (("orders", "--where", "n=inf"), "not a BIGINT"),
        (("orders", "--where", "n=1_0"), "not a BIGINT"),
        (("orders", "--where", "n=\u0661"), "not a BIGINT"),
        (("orders", "--where", "n="), "not a BIGINT"),
        (("orders", "--where", "n=1 OR 1 = 1"), "not a BIGINT"),
        (("prices", "--key", "1e999"), "not a DOUBLE"),
        (("prices", "--key", "0x10"), "not a DOUBLE"),
        (("amounts", "--key", "1e2"), "not a DECIMAL"),
        (("amounts", "--key", "1.255"), "no row of amounts can have that key"),
    ],
)
def test_what_is_refused(store: InsideStore, arguments: tuple[str, ...], problem: str) -> None:
    store.client.define("CREATE STREAM visits (place TEXT, id BIGINT) KEY (place, id)")
    store.client.define("CREATE STREAM orders (person TEXT, n BIGINT)")
    store.client.define("CREATE STREAM prices (id DOUBLE) KEY (id)")
    store.client.define("CREATE STREAM amounts (id DECIMAL(6,2)) KEY (id)")
    refused = erase(store, *arguments, "--yes")
    assert refused.exit_code != 0 and problem in refused.output, refused.output
    assert "secret" not in refused.output
