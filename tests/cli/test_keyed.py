"""Files into keyed streams: a column `_op` says which lines delete their key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from client_sdk import Client, ConnectionFailed, MockTransport
from tests.cli.conftest import Run

PARKING = "CREATE STREAM parking (place TEXT, free BIGINT, zone TEXT) KEY (place)"

CSV = """place,free,zone,_op
a,5,n,
b,7,s,row
a,4,n,row
b,,,delete
"""
JSON_LINES = """{"place": "a", "free": 5, "zone": "n"}
{"place": "b", "free": 7, "zone": "s", "_op": "row"}
{"place": "a", "free": 4, "zone": "n", "_op": null}
{"place": "b", "_op": "delete"}
"""
DELETES = """_OP,Place
delete,a
"""


@pytest.fixture(autouse=True)
def parking(run: Run) -> None:
    run("stream", "create", PARKING)


def current(client: Client) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in client.ask("SELECT place, free FROM parking").rows]


@pytest.mark.parametrize(("name", "text"), [("day.csv", CSV), ("day.jsonl", JSON_LINES)])
def test_rows_and_deletes(run: Run, client: Client, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert "4 rows in parking" in run("publish", "parking", str(tmp_path / name)).stderr
    assert current(client) == [("a", 4)]
    (tmp_path / "deletes.csv").write_text(DELETES)
    run("publish", "parking", str(tmp_path / "deletes.csv"))
    assert current(client) == []


def test_parquet(run: Run, client: Client, tmp_path: Path) -> None:
    columns = {"place": ["a", "b"], "free": [1, 2], "zone": ["n", None]}
    pa.parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    deletes = pa.table({"place": ["a"], "_op": pa.array(["delete"]).dictionary_encode()})
    pa.parquet.write_table(deletes, tmp_path / "gone.parquet")
    for name in ("rows", "gone"):
        run("publish", "parking", str(tmp_path / f"{name}.parquet"))
    assert current(client) == [("b", 2)]


def test_bad_lines_are_named(run: Run, client: Client, tmp_path: Path) -> None:
    bad = CSV + "c,1,n,remove\n,1,n,row\n"
    (tmp_path / "day.csv").write_text(bad)
    messages = run("publish", "parking", str(tmp_path / "day.csv"), code=1).stderr
    assert "line 6, _op: 'remove' is not row, delete or patch" in messages
    assert "line 7, place: '' a column of the stream key can't be NULL" in messages
    (tmp_path / "few.csv").write_text("place,_op\na,delete\nb,row\n")
    messages = run("publish", "parking", str(tmp_path / "few.csv"), code=1).stderr
    assert "line 3, free: '' is missing: only a delete or patch may leave it out" in messages
    (tmp_path / "few.jsonl").write_text('{"place": "b", "free": 1, "_op": "row"}\n')
    messages = run("publish", "parking", str(tmp_path / "few.jsonl"), code=1).stderr
    assert "is missing zone" in messages
    assert current(client) == []


def test_a_stream_without_a_key_has_none_to_delete(run: Run, tmp_path: Path) -> None:
    run("stream", "create", "CREATE STREAM plain (a BIGINT)")
    (tmp_path / "day.csv").write_text("a,_op\n1,row\n2,delete\n")
    messages = run("publish", "plain", str(tmp_path / "day.csv"), code=1).stderr
    assert (
        "line 3, _op: 'delete' is not row: the stream has no KEY to delete or patch by" in messages
    )


def test_streams_show_their_keys(run: Run) -> None:
    assert "place" in run("stream", "list").stdout
    assert "key place" in run("stream", "show", "parking").stdout


def write(path: Path, first: str, count: int = 1) -> str:
    lines = [f"{number},{ord(first)},{first}" for number in range(count)]
    path.write_text("\n".join(["place,free,zone", *lines, ""]))
    return str(path)


def zones(client: Client) -> set[object]:
    return {row["zone"] for row in client.ask("SELECT zone FROM parking").rows}


def test_a_file_that_is_there_already_is_published_again(
    run: Run, client: Client, tmp_path: Path
) -> None:
    a, b = write(tmp_path / "a.csv", "a"), write(tmp_path / "b.csv", "b")
    for _ in range(3):
        for path, zone in ((a, "a"), (b, "b"), (a, "a")):
            messages = run("publish", "parking", path).stderr
            assert zones(client) == {zone}
        assert "a.csv was published before" in messages
    assert client.stream("parking").row_count == 9
    names = [record.name for record in client.publishers(prefix="file-")]
    times = sorted(name.partition("/")[2] for name in names)
    assert times == ["", "", "2", "2", "3", "3", "4", "5", "6"]


def test_once_leaves_a_file_that_is_there(run: Run, client: Client, tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.csv", "a"), write(tmp_path / "b.csv", "b")
    for path in (a, b):
        run("publish", "parking", path, "--once")
    messages = run("publish", "parking", a, "--once").stderr
    assert "a.csv was published before" in messages
    assert zones(client) == {"b"} and client.stream("parking").row_count == 2


def test_a_second_time_that_is_cut_is_carried_on(
    run: Run,
    client: Client,
    transport: MockTransport,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command keeps nothing of its own, so that a cut is to it what a kill is."""
    monkeypatch.setattr("psoup.source.readers.READ_BYTES", 2_000)
    monkeypatch.setattr("client_sdk._grpc.effects.Retry.pause", lambda self, made: 0.0)
    a, b = write(tmp_path / "a.csv", "a", 1000), write(tmp_path / "b.csv", "b", 1000)
    for path in (a, b):
        run("publish", "parking", path)
    publish = transport._handlers["Publish"]

    def cut(request: Any) -> Any:
        if request.sequence > 3:
            raise ConnectionFailed("cut")
        return publish(request)

    for _ in range(2):
        transport._handlers["Publish"] = cut
        run("publish", "parking", a, code=3)
        half = client.stream("parking").row_count
        assert 2000 < half < 3000
    transport._handlers["Publish"] = publish
    assert f"({half - 2000:,} already stored)" in run("publish", "parking", a).stderr
    assert zones(client) == {"a"} and client.stream("parking").row_count == 3000


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_file_of_edits_that_expect_rows(
    run: Run, client: Client, tmp_path: Path, form: str
) -> None:
    def publish(free: int, expected: int, code: int = 0) -> str:
        row = {"place": "a", "free": free, "zone": "n", "_expected": expected}
        path = tmp_path / f"edits.{form}"
        if form == "parquet":
            pa.parquet.write_table(pa.Table.from_pylist([row]), path)
        elif form == "csv":
            path.write_text(f"{','.join(row)}\n{','.join(map(str, row.values()))}\n")
        else:
            path.write_text(f"{json.dumps(row)}\n")
        return run("publish", "parking", str(path), code=code).stderr

    publish(1, -1)
    publish(2, 0)
    assert "another row of its key is current" in publish(3, 0, code=1)
    assert "_expected: '-2' is no row id, nor -1 for none" in publish(3, -2, code=1)
    assert current(client) == [("a", 2)]


def test_patches_of_every_format(run: Run, client: Client, tmp_path: Path) -> None:
    client.publish("parking", [{"place": place, "free": 1, "zone": "n"} for place in "abc"])
    (tmp_path / "free.csv").write_text("place,free,_op\na,2,patch\n")
    lines = '{"place": "b", "zone": null, "_op": "patch"}\n{"place": "c", "_op": "delete"}\n'
    (tmp_path / "zone.jsonl").write_text(lines)
    patch = pa.table({"place": ["b"], "free": [7], "_op": ["patch"]})
    pa.parquet.write_table(patch, tmp_path / "free.parquet")
    for name in ("free.csv", "zone.jsonl", "free.parquet"):
        run("publish", "parking", str(tmp_path / name))
    rows = client.ask("SELECT place, free, zone FROM parking")
    assert sorted(tuple(row.values()) for row in rows) == [("a", 2, "n"), ("b", 7, None)]
    # A field that is missing is kept, so all patches of a file set the same.
    (tmp_path / "both.jsonl").write_text(
        '{"place": "a", "free": 3, "_op": "patch"}\n{"place": "b", "zone": "s", "_op": "patch"}\n'
    )
    messages = run("publish", "parking", str(tmp_path / "both.jsonl"), code=1).stderr
    assert "line 2" in messages and "sets other columns than the patch in line 1" in messages
