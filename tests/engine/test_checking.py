"""`psoup check` finds every planted contradiction, and `psoup rebuild` ends those it can."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from datastem.instants import HOUR
from psoup.cli import cli
from psoup.engine.ownership.lock import EngineLock
from psoup.engine.repair.block_checking import check_with
from psoup.engine.repair.recover import open_ledger
from psoup.store import Store
from psoup.store.backup.pins import PINS
from psoup.store.block_checking import check_here
from psoup.store.checking import check
from psoup.store.delta.files import write_data_file
from psoup.store.delta.reading import reader
from results.bitmaps import decode, encode
from tests.conftest import ROOT
from tests.engine.test_keyed import Story, keyed
from tests.support.engine.author import READINGS, Author, above, readings, sensor_is
from tests.support.engine.pump import Pump
from tests.support.engine.reading import assert_joined, matched

pytestmark = pytest.mark.spark


class Checked:
    """A store with a plain stream and a keyed one, all of whose rows the engine has met."""

    def __init__(self, store: Store, author: Author, spark: SparkSession) -> None:
        self.store, self.author, self.spark = store, author, spark
        self.stream = author.create(READINGS)
        _, self.high = author.register(self.stream, above(1.0))
        self.story = Story(author, keyed(), 3)
        author.register(self.story.stream, above(5.0))
        for number in range(4):
            author.publish(self.stream, readings([number, 2, 7], [float(number), 1.5, 0.5]))
            self.story.publish(20)
            Pump(store, spark).run()
        # Older rows are back-filled for this one.
        _, self.second = author.register(self.stream, sensor_is(2))
        Pump(store, spark).run()
        # This one has met no row yet.
        author.register(self.stream, above(0.25))
        Pump(store, spark).step()
        author.publish(self.stream, readings([9], [9.0]))

    def problems(self, share: float = 1.0) -> list[str]:
        """Check the store in this process and by Spark, and compare both reports."""
        reports = [
            check(Store.open(self.store.root), share, dice=Random(1), check_blocks=check_blocks)
            for check_blocks in (check_here, check_with(self.spark))
        ]
        assert reports[0] == reports[1]
        return reports[0].problems

    def rewrite(self, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
        """Replace a file of a table, or all files of the coverage, by a changed one with right
        checksums, by an epoch."""
        ledger = open_ledger(self.store)
        files = ledger.files(name) if name == "coverage" else ledger.files(name)[:1]
        root, first = ledger.folder(name).root, files[0]
        table = change(pa.concat_tables([reader(root, file).whole() for file in files]))
        bounds = [bound for bound in first.low if bound in table.column_names]
        added = write_data_file(root, table, partition=first.partition, bounds=bounds, sync=False)
        ledger.commit(name, [added], files, operation="TEST")
        ledger.publish("test")


@pytest.fixture
def checked(store: Store, author: Author, spark: SparkSession) -> Checked:
    return Checked(store, author, spark)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def _without_a_bit(table: pa.Table) -> pa.Table:
    rows = table.to_pylist()
    lows = decode(rows[0]["bitmap"])
    rows[0]["bitmap"] = encode(lows[1:])
    return pa.Table.from_pylist(rows, schema=table.schema)


def _without_its_last_row(table: pa.Table) -> pa.Table:
    return table.slice(0, table.num_rows - 1)


def _later(table: pa.Table) -> pa.Table:
    ends = pa.compute.add(table.column("end").cast(pa.int64()), HOUR)
    place = table.column_names.index("end")
    return table.set_column(place, "end", ends.cast(table.schema.field("end").type))


def _closed(table: pa.Table) -> pa.Table:
    """End the rows that predicates are matched with."""
    place = table.column_names.index("row_hi")
    return table.set_column(place, "row_hi", pa.array([1] * table.num_rows, pa.int64()))


def _other_row(table: pa.Table) -> pa.Table:
    place = table.column_names.index("_row_id")
    ids = table.column("_row_id").to_pylist()
    return table.set_column(place, "_row_id", pa.array([*ids[:-1], ids[0]], pa.int64()))


def test_a_sound_store_has_no_problem(checked: Checked) -> None:
    done = run("check", checked.store.root)
    assert done.exit_code == 0, done.output
    assert "no problem" in done.output and "matches of 2 of 2 blocks" in done.output
    assert not list((checked.store.root / PINS).iterdir())
    for wrong in ("0", "101%", "a few"):
        assert run("check", checked.store.root, "--sample", wrong).exit_code == 2


@pytest.mark.parametrize(
    ("table", "change", "problem"),
    [
        ("matches", _without_a_bit, "that match"),
        ("coverage", _closed, "is not matched with new rows"),
        ("coverage", lambda table: table.slice(0, 0), "is not matched with new rows"),
        ("closures", _without_its_last_row, "end at other instants"),
        ("closures", _later, "end at other instants"),
    ],
)
def test_contradictions_of_derived_tables_are_listed_and_rebuilt(
    checked: Checked, table: str, change: Callable[[pa.Table], pa.Table], problem: str
) -> None:
    checked.rewrite(table, change)
    done = run("check", checked.store.root, "--all")
    assert done.exit_code == 1 and problem in done.output
    assert any(problem in line for line in checked.problems())
    done = run("rebuild", checked.store.root)
    assert done.exit_code == 0, done.output
    assert not matched(checked.store, checked.high)
    Pump(checked.store, checked.spark).run()
    assert checked.problems() == []
    meanings = {
        checked.high: lambda row: row["value"] > 1.0,
        checked.second: lambda row: row["sensor"] == 2,
    }
    assert_joined(checked.store, checked.stream, meanings)


def test_contradictions_of_rows_are_listed(checked: Checked) -> None:
    checked.rewrite(f"stems/{checked.stream}", _other_row)
    assert any("twice" in problem for problem in checked.problems())


def test_a_missing_row_is_listed(checked: Checked) -> None:
    checked.rewrite(f"stems/{checked.stream}", _without_its_last_row)
    assert any("has 11 of 12 rows" in problem for problem in checked.problems())


def test_an_epoch_that_differs_from_the_log_is_listed(checked: Checked) -> None:
    ledger = open_ledger(checked.store)
    stream = ledger.state.streams[checked.stream]
    ledger.state.streams[checked.stream] = replace(stream, high=stream.high + 5)
    ledger.publish("test")
    problems = checked.problems()
    assert any("begins at row 12 of stream number" in problem for problem in problems)


def test_damaged_files_are_listed(checked: Checked) -> None:
    path = next((checked.store.root / "matches").rglob("*.parquet"))
    for file in (checked.store.root / "matches").rglob("part-*.parquet"):
        content = bytearray(file.read_bytes())
        content[40] ^= 1
        file.write_bytes(content)
    done = run("check", checked.store.root)
    assert done.exit_code == 1 and path.name in done.output and "is damaged" in done.output
    assert any(path.name in problem for problem in checked.problems())


def test_a_rebuild_needs_the_engine_stopped(checked: Checked) -> None:
    lock = EngineLock(checked.store.root)
    lock.acquire()
    before = checked.store.epochs.latest()[0]
    done = run("rebuild", checked.store.root)
    lock.release()
    assert done.exit_code == 1 and "already runs" in done.output
    assert checked.store.epochs.latest()[0] == before


@pytest.mark.long
def test_the_command_with_spark_of_its_own(checked: Checked) -> None:
    """In a process of its own, because a process has one session."""
    checked.rewrite("matches", _without_a_bit)
    outputs = []
    for more in ([], ["--spark", "--master", "local[2]"]):
        command = [
            sys.executable,
            "-m",
            "psoup.cli",
            "check",
            str(checked.store.root),
            "--all",
            *more,
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1] and "that match" in outputs[0]
