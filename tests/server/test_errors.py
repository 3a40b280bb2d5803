"""The one table of status codes is complete, and every status carries its detail."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

import psoup.server.calls.invoke  # noqa: F401 - every module that may define errors is loaded
import psoup.server.services  # noqa: F401
from datastem.errors import RowError
from psoup.errors import ClientKeyTaken
from psoup.server.status_codes import CODES, FAMILIES, detail_of, internal_status, status_of
from psoup.v1 import psoup_pb2 as pb
from querystem.language import QueryError, Span

STORE = "5" * 32


def family(root: type[Exception]) -> Iterator[type[Exception]]:
    yield root
    for child in root.__subclasses__():
        yield from family(child)


@pytest.mark.parametrize("root", FAMILIES)
def test_the_table_is_complete(root: type[Exception]) -> None:
    missing = [kind.__name__ for kind in family(root) if kind not in CODES]
    assert not missing


def test_the_table_has_nothing_else() -> None:
    kinds = {kind for root in FAMILIES for kind in family(root)}
    assert set(CODES) <= kinds
    assert grpc.StatusCode.OK not in CODES.values()


def test_a_query_error_says_where() -> None:
    error = QueryError("no such column", Span(7, 10), hint="write speed", reason="UNKNOWN_COLUMN")
    error.text = "SELECT spd FROM traffic"
    detail = detail_of(error, STORE)
    assert (detail.reason, detail.line, detail.column) == ("UNKNOWN_COLUMN", 1, 8)
    assert "^^^" in detail.excerpt
    assert detail.hint == "write speed"


def test_a_row_error_says_which_row() -> None:
    detail = detail_of(
        RowError("WRONG_TYPE", "no", row=3, field="a", expected="TEXT", got="1"), STORE
    )
    assert (detail.row, detail.field, detail.expected, detail.got) == (3, "a", "TEXT", "1")


def test_a_status_fits_the_trailers_of_http() -> None:
    long = "ü" * 10**6
    errors = [
        ClientKeyTaken(long),
        RowError("X", long, field=long, expected=long, got=long, hint=long),
    ]
    for error in errors:
        status = status_of(error, STORE)
        assert status.ByteSize() < 6000
        detail = pb.ErrorDetail()
        assert status.details[0].Unpack(detail)
        assert detail.store_id == STORE
    assert "abcd" in internal_status("abcd", STORE).message
