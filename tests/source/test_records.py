"""Blocks of whole records, however the bytes arrive."""

from __future__ import annotations

import csv
import io
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk import Column, Stream
from psoup.source.errors import BadInput
from psoup.source.readers import FileChunk, Options, line_parser
from psoup.source.readers import records as records_module
from psoup.source.readers.records import Splitter

STREAM = Stream(
    "t",
    1,
    (Column("a", "BIGINT"), Column("b", "TEXT")),
    None,
    None,
    timedelta(0),
    0,
    None,
    "",
    0,
)


def parse(
    content: bytes, cuts: list[int], form: str = "csv", **options: str
) -> tuple[list[dict[str, object]], list[tuple[int, str, str]], int]:
    parser = line_parser(form, STREAM, Options(**options))  # type: ignore[arg-type]
    chunks = list[FileChunk]()
    places = sorted({min(cut, len(content)) for cut in cuts} | {0, len(content)})
    for begin, end in zip(places, places[1:], strict=False):
        chunks += parser.feed(content[begin:end])
    chunks += parser.finish()
    rows = [row for chunk in chunks for row in chunk.table.to_pylist()]
    bad = [(line.number, line.column, line.why) for chunk in chunks for line in chunk.bad]
    return rows, bad, sum(chunk.size for chunk in chunks)


CUTS = st.lists(st.integers(0, 200), max_size=12)


@given(st.lists(st.tuples(st.integers(-9, 9), st.text('a",\né\t ', max_size=6)), max_size=12), CUTS)
def test_csv_in_pieces_is_what_was_written(rows: list[tuple[int, str]], cuts: list[int]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerows([("a", "b"), *rows])
    content = text.getvalue().encode()
    values, bad, size = parse(content, cuts)
    assert [(row["a"], row["b"]) for row in values] == rows
    assert not bad and size == len(content)


@given(st.lists(st.sampled_from(["1,x\n", '2,"q\nq"\n', '3,5" z\n', "\n", "x,y\n", "7\n"])), CUTS)
def test_bad_lines_have_the_same_numbers_however_they_arrive(
    lines: list[str], cuts: list[int]
) -> None:
    content = ("a,b\n" + "".join(lines)).encode()
    assert parse(content, cuts) == parse(content, [])


@given(st.binary(max_size=120), CUTS, st.sampled_from(["csv", "jsonl"]))
def test_any_bytes_are_rows_or_bad_lines(content: bytes, cuts: list[int], form: str) -> None:
    """Whatever arrives, it is parsed or refused, and every byte is counted."""
    try:
        *_, size = parse(b"a,b\n" + content if form == "csv" else content, cuts, form)
    except BadInput:
        return
    assert size == len(content) + (4 if form == "csv" else 0)


def test_a_line_without_an_end_is_one_bad_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "MAX_RECORD_BYTES", 1000)
    content = b"a,b\n1,x\n2," + b"y" * 5000 + b"\n3,z\n"
    rows, bad, size = parse(content, list(range(0, 5000, 64)))
    assert [row["a"] for row in rows] == [1, 3]
    assert [number for number, _, _ in bad] == [3] and "5,003 bytes" in bad[0][2]
    assert size == len(content)


def test_a_quote_that_is_not_closed_costs_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "MAX_RECORD_BYTES", 1000)
    content = b'a,b\n1,"x\n' + b"2,y\n" * 2000
    rows, bad, size = parse(content, list(range(0, 9000, 500)))
    assert len(rows) == 2000 and "not closed" in bad[0][2] and bad[0][0] == 2
    assert size == len(content)


def test_what_is_buffered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "MAX_RECORD_BYTES", 10_000)
    splitter = Splitter(",")
    for _ in range(200):
        list(splitter.feed(b'"' + b"x" * 999))
        assert len(splitter._buffer) <= 11_000


def test_other_encodings() -> None:
    content = "a;b\n1;é\n2;ß\n".encode("latin-1")
    rows, bad, _ = parse(content, [5], delimiter=";", encoding="latin-1")
    assert [row["b"] for row in rows] == ["é", "ß"] and not bad
    rows, bad, _ = parse(b"a,b\n1,\xe9\n2,b\n", [])
    assert [row["a"] for row in rows] == [2] and bad == [(2, "b", "is not UTF-8")]
    with pytest.raises(BadInput, match="unknown encoding"):
        parse(b"a,b\n1,x\n", [], encoding="klingon")


def test_a_header_by_semicolons_is_explained() -> None:
    with pytest.raises(BadInput, match="separated by ';'"):
        parse(b"a;b\n1;2\n", [])
