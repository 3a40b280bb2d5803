"""Every type through every format and back; old or new, never half, also under SIGKILL."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.pulls import BadPull
from client_sdk.pulls._receipt import content_of
from client_sdk.pulls._sinks import FORMATS, format_of, sink_for
from tests.conftest import ROOT
from tests.support.client_sdk.tables import COLUMNS, SCHEMA, holds, output_of, rows, same, table_of

ODD: list[dict[str, Any]] = [
    {"x": float("nan"), "name": "", "at": datetime.min.replace(tzinfo=UTC)},
    {"x": float("inf"), "name": None, "at": datetime.max.replace(tzinfo=UTC)},
    {"x": -0.0, "flag": False, "n": -(2**63)},
    {"x": 5e-324, "name": "NaN", "n": 2**53 + 1},
]


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=15)
@given(st.lists(st.lists(rows, max_size=5), min_size=1, max_size=2))
def test_what_is_written_reads_back_equal(form, answers) -> None:
    """The second answer takes the place of the first."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"answer.{form}"
        for answer in answers:
            sink_for(path, form, "dear").write(output_of(table_of(answer)))
            assert holds(path, form, table_of(answer))


@pytest.mark.parametrize("form", FORMATS)
def test_values_that_get_lost_easily(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"answer.{form}"
    sink = sink_for(path, form, "dear")
    sink.write(output_of(table_of([])))
    assert holds(path, form, table_of([]))
    sink.write(output_of(table_of(ODD)))
    assert holds(path, form, table_of(ODD))


@pytest.mark.parametrize("form", FORMATS)
def test_other_columns_take_the_place_of_the_old_ones(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"answer.{form}"
    sink = sink_for(path, form, "dear")
    sink.write(output_of(table_of(ODD).select(["n", "x"])))
    sink.write(output_of(table_of(ODD)))
    assert holds(path, form, table_of(ODD))


@pytest.mark.parametrize("form", FORMATS)
def test_a_failure_in_the_middle_leaves_the_old_answer(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"answer.{form}"
    sink = sink_for(path, form, "dear")
    sink.write(output_of(table_of(ODD)))
    before = (sink.stamp(), sink.fingerprint())

    def broken():
        yield table_of(ODD).to_batches()[0]
        raise KeyboardInterrupt

    good = output_of(table_of([]))
    with pytest.raises(BaseException):  # noqa: B017 - deltalake turns it into its own
        sink.write(type(good)("dear", COLUMNS, broken))
    assert holds(path, form, table_of(ODD))
    assert (sink.stamp(), sink.fingerprint()) == before
    if form != "delta":
        assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("form", FORMATS)
def test_a_change_by_somebody_else_is_noticed(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"answer.{form}"
    sink = sink_for(path, form, "dear")
    assert (sink.stamp(), sink.fingerprint()) == (None, None)
    sink.write(output_of(table_of(ODD)))
    before = (sink.stamp(), sink.fingerprint())
    assert before == (sink.stamp(), sink.fingerprint())
    if form == "sqlite":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE dear SET n = 7 WHERE rowid = 2")
            connection.commit()
    elif form == "delta":
        sink.write(output_of(table_of([])))
    else:
        with path.open("r+b") as file:
            file.write(b"!")
    assert sink.stamp() != before[0]
    assert sink.fingerprint() != before[1]


def test_a_delta_table_with_a_file_gone_is_not_what_was_written(tmp_path: Path) -> None:
    sink = sink_for(tmp_path / "answer.delta", "delta", "dear")
    sink.write(output_of(table_of(ODD)))
    next((tmp_path / "answer.delta").glob("*.parquet")).unlink()
    assert sink.stamp() is None


def test_a_sqlite_file_keeps_its_other_tables_and_its_indexes(tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite"
    for name in ("dear", "cheap-ones"):
        sink_for(path, "sqlite", name).write(output_of(table_of(ODD), name))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE INDEX by_n ON dear (n)")
        connection.commit()
    sink_for(path, "sqlite", "dear").write(output_of(table_of(ODD[:1])))
    with closing(sqlite3.connect(path)) as connection:
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        counts = connection.execute(
            'SELECT (SELECT count(*) FROM dear), (SELECT count(*) FROM "cheap-ones")'
        ).fetchone()
        about = connection.execute("SELECT name, position, now FROM psoup_pulls").fetchall()
    assert {"dear", "cheap-ones", "by_n"} <= names
    assert counts == (1, 4)
    assert sorted(about)[1] == ("dear", "0102", "2026-11-16T09:00:00+00:00")


def test_parquet_says_what_it_is_of(tmp_path: Path) -> None:
    path = tmp_path / "answer.parquet"
    sink_for(path, "parquet", "dear").write(output_of(table_of(ODD)))
    assert pyarrow.parquet.read_schema(path).metadata == {
        b"psoup.pull": b"dear",
        b"psoup.position": b"0102",
        b"psoup.now": b"2026-11-16T09:00:00+00:00",
    }


def test_a_link_and_its_mode_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    sink_for(link, "csv", "dear").write(output_of(table_of(ODD)))
    assert link.is_symlink() and holds(real, "csv", table_of(ODD))
    assert real.stat().st_mode & 0o777 == 0o640


def test_places_that_can_t_be_an_output(tmp_path: Path) -> None:
    (tmp_path / "file.delta").write_text("")
    for path, form, name in (
        (tmp_path / "none" / "a.csv", "csv", "dear"),
        (tmp_path, "parquet", "dear"),
        (tmp_path / "file.delta", "delta", "dear"),
        (tmp_path / "a.db", "sqlite", "psoup_pulls"),
    ):
        with pytest.raises(BadPull):
            sink_for(path, form, name)
    with pytest.raises(BadPull, match=r"\.parquet"):
        format_of(Path("answers"))


def test_a_missing_deltalake_says_how_to_get_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(BadPull, match="pip install 'deltalake"):
        sink_for(tmp_path / "answers", "delta", "dear")


# ---- the digest of the rows


@settings(max_examples=40)
@given(st.lists(rows, max_size=9), st.lists(rows, max_size=9), st.integers(1, 4))
def test_equal_rows_have_an_equal_digest_however_they_are_cut(first_cuts, right, size) -> None:
    first, second = table_of(first_cuts), table_of(right)
    assert _digest(first, 9) == _digest(first, size)
    assert (_digest(first, 9) == _digest(second, size)) == same(first, second)


def test_what_lies_under_a_null_does_not_count() -> None:
    hidden = pa.array([1, 2], mask=pa.array([False, True]).to_numpy(False))
    plain = pa.array([1, None])
    schema = pa.schema([("n", pa.int64())])
    batches = [pa.record_batch([array], schema=schema) for array in (hidden, plain)]
    assert len({content_of(schema, [batch]) for batch in batches}) == 1


def _digest(table: pa.Table, size: int) -> str:
    return content_of(SCHEMA, table.to_batches(max_chunksize=size)).digest


# ---- a writer that is killed

WRITER = """
import sys, threading
from pathlib import Path
from client_sdk.pulls._sinks import FORMATS, sink_for
from tests.support.client_sdk.tables import COLUMNS, output_of, table_of

new = table_of([{"n": 2, "name": "new" * 50}] * 20_000)
reached = threading.Barrier(len(FORMATS) + 1)

def batches():
    for number, batch in enumerate(new.to_batches(max_chunksize=1000)):
        if number == 10:
            reached.wait()
            threading.Event().wait()
        yield batch

def write(form):
    output = output_of(new)
    path = Path(sys.argv[1]) / f"answer.{form}"
    sink_for(path, form, "dear").write(type(output)("dear", COLUMNS, batches))

for form in FORMATS:
    threading.Thread(target=write, args=(form,)).start()
reached.wait()
print("half", flush=True)
"""


@pytest.mark.process
def test_a_killed_writer_leaves_the_old_answer_and_the_next_one_writes(tmp_path: Path) -> None:
    """One process in the middle of all formats at once."""
    paths = {form: tmp_path / f"answer.{form}" for form in FORMATS}
    for form, path in paths.items():
        sink_for(path, form, "dear").write(output_of(table_of(ODD)))
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"half\n"
        os.kill(writer.pid, signal.SIGKILL)
    assert (tmp_path / ".answer.csv.pulling").exists()
    for form, path in paths.items():
        assert holds(path, form, table_of(ODD))
        sink_for(path, form, "dear").write(output_of(table_of(ODD[:1])))
        assert holds(path, form, table_of(ODD[:1]))
    assert {file.name for file in tmp_path.iterdir()} == {path.name for path in paths.values()}
