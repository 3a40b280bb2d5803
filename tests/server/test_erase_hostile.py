"""ERASE that is refused, or whose key has several spellings: the value is nowhere, and each
spelling is the same key."""

from __future__ import annotations

import logging
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import grpc
import pytest

from psoup.v1 import psoup_pb2 as pb
from tests.support.engine.leftovers import leftovers
from tests.support.server.callers import tenant_server
from tests.support.server.process import detail

NAME = "Annabella-Zyx"


@pytest.mark.parametrize(
    "text",
    [
        f"ERASE FROM people WHERE id = '{NAME}' AND",
        f"ERASE FROM people WHERE id = '{NAME}' OR id = 'other'",
        f"ERASE FROM people WHERE name = '{NAME}'",
        f"ERASE FROM persons WHERE id = '{NAME}'",
        f"ERASE FROM numbers WHERE n = '{NAME}'",
        f"ERASE FROM people WHERE id = '{NAME}",
    ],
)
async def test_a_refused_statement_leaves_no_value(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with tenant_server(tmp_path / "store") as server:
        boss = server.administrator
        await boss.define("CREATE STREAM people (id TEXT, name TEXT) KEY (id)")
        await boss.define("CREATE STREAM numbers (n BIGINT) KEY (n)")
        for caller in (boss, server.caller()):
            with pytest.raises(grpc.aio.AioRpcError):
                await caller.define(text)
        audit = await boss.only("Audit", pb.AuditRequest())
        assert NAME not in str(audit) and NAME not in caplog.text
    assert not leftovers(tmp_path, NAME)


@pytest.mark.parametrize(
    ("type_", "published", "erased", "repeated"),
    [
        ("DOUBLE", -0.0, "0.0", 0.0),
        ("DOUBLE", 0.0, "-0.0", -0.0),
        ("DOUBLE", 3.0, "3", 3.0),
        ("DOUBLE", float("inf"), "CAST('Infinity' AS DOUBLE)", float("inf")),
        ("BIGINT", 3, "3.0", 3),
        ("TEXT", "é", "'é'", "é"),
        ("TEXT", "", "''", ""),
        ("TEXT", "it's", "'it''s'", "it's"),
        ("BOOLEAN", True, "true", True),
        ("DOUBLE", float("nan"), "CAST('NaN' AS DOUBLE)", float("nan")),
        ("DOUBLE", 0.1, "0.1", 0.1),
        ("DECIMAL(6,2)", Decimal("1.25"), "1.250", Decimal("1.25")),
        ("DATE", date(2026, 1, 2), "DATE '2026-01-02'", date(2026, 1, 2)),
    ],
)
async def test_spellings_of_a_key(
    type_: str, published: Any, erased: str, repeated: Any, tmp_path: Path
) -> None:
    async with tenant_server(tmp_path / "store") as server:
        boss = server.administrator
        await boss.define(f"CREATE STREAM people (id {type_}, name TEXT) KEY (id)")
        await boss.publish("people", id=[published], name=["x"])
        try:
            await boss.define(f"ERASE FROM people WHERE id = {erased}")
        except grpc.aio.AioRpcError as error:
            assert detail(error).reason == "BAD_ERASE"
            assert len(await boss.ask("SELECT name FROM people")) == 1
            return
        assert await boss.ask("SELECT name FROM people") == []
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await boss.publish("people", id=[repeated], name=["y"])
        assert detail(caught.value).reason == "ERASED"


@pytest.mark.parametrize(
    ("type_", "published", "erased"),
    [
        ("BIGINT", 1, "1.5"),
        ("BIGINT", 1, "9223372036854775808"),
        ("BIGINT", 1, "1e300"),
        ("BIGINT", 1, "CAST('NaN' AS DOUBLE)"),
        ("DECIMAL(6,2)", Decimal("1.25"), "1.255"),
        ("DECIMAL(6,2)", Decimal("1.25"), "99999999"),
    ],
)
async def test_a_value_that_no_key_has_is_refused(
    type_: str, published: Any, erased: str, tmp_path: Path
) -> None:
    """Rounded it would be another key, which would be refused from then on."""
    async with tenant_server(tmp_path / "store") as server:
        boss = server.administrator
        await boss.define(f"CREATE STREAM people (id {type_}, name TEXT) KEY (id)")
        await boss.publish("people", id=[published], name=["x"])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await boss.define(f"ERASE FROM people WHERE id = {erased}")
        assert detail(caught.value).reason == "BAD_ERASE", caught.value
        await boss.publish("people", id=[published], name=["y"])
        assert await boss.ask("SELECT name FROM people") == ["y"]


async def test_keys_that_look_alike_are_different(tmp_path: Path) -> None:
    """A Latin and a Greek letter, and a letter as one code point and as two."""
    alike = ["A", "\u0391", "\u00e9", "e\u0301", "a", "", " "]
    async with tenant_server(tmp_path / "store") as server:
        boss = server.administrator
        await boss.define("CREATE STREAM people (id TEXT, name TEXT) KEY (id)")
        await boss.publish("people", id=alike, name=alike)
        for count, text in enumerate(alike[::2], 1):
            await boss.define(f"ERASE FROM people WHERE id = '{text}'")
            remaining = await boss.ask("SELECT name FROM people")
            assert text not in remaining and len(remaining) == len(alike) - count
