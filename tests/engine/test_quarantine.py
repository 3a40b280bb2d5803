"""The engine sets aside a predicate that fails, names it, and goes on; a release tries it again.

Bad predicates are put into the log directly, since no server appends one.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, BOOLEAN, TEXT
from psoup.engine.engine import Engine
from psoup.engine.errors import EngineFailed
from psoup.engine.matching.coverage import OPEN, Cohort, Cohorts
from psoup.engine.matching.predicates import predicates_of
from psoup.engine.repair.culprits import Search
from psoup.engine.repair.mend import restart_coverage
from psoup.engine.repair.quarantine import set_aside, suspects
from psoup.engine.repair.recover import open_ledger
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.jobs import Outcome, SparkJob, Spent, TaskFailed, WorkerDied, run_tasks
from psoup.store import Position, Store
from psoup.store.inspection import quarantine, release
from psoup.store.log.access_events import AccessPut
from psoup.store.state.access import FilledPolicy, Policy
from psoup.store.state.quarantine import PREDICATE, QuarantineEntry, reason_of
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op
from results.bitmaps import decode
from tests.support.engine.author import READINGS, Author, above, readings
from tests.support.engine.reading import Meaning, assert_joined, covered, matched

TAGS = StreamSchema("tags", (Column("tag", TEXT), Column("n", BIGINT)))

# Fails to build: the text is not valid UTF-8, but its JSON is, so the log accepts it.
UNBUILDABLE = json.dumps(
    ["call", "BOOLEAN", "=", ["col", "TEXT", "tag"], ["lit", "TEXT", "\ud800"]],
    separators=(",", ":"),
)
# Can be built, and fails when rows arrive: there is no such column.
UNPROBEABLE = '["call","BOOLEAN","<",["col","BIGINT","nowhere"],["lit","BIGINT",3]]'


def tags(texts: list[str]) -> pa.RecordBatch:
    arrays = [pa.array(texts, pa.string()), pa.array(range(len(texts)), pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, schema=TAGS.arrow)


def tag_is(text: str) -> Expression:
    return Call(Op.EQ, (ColumnRef("tag", TEXT), Literal(text, TEXT)), BOOLEAN)


def has_tag(text: str) -> Meaning:
    return lambda row: bool(row["tag"] == text)


def fill(author: Author, stream: int, key: str) -> tuple[int, Position]:
    """Append a policy that is filled in with `key`, and return the id of its predicate."""
    policy = Policy(author.new_id(), "main", "main", "p", stream, "?", "[]", ("c",))
    id_ = author.state.next_predicate_id
    filled = FilledPolicy(policy.policy_id, stream, id_, key, 1)
    author.append(AccessPut((policy,)))
    return id_, author.append(AccessPut((filled,)))


@contextmanager
def running(store: Store, spark: SparkSession, **settings: Any) -> Iterator[Engine]:
    engine = Engine(store, spark, EngineSettings(**settings))
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_bad_predicate_is_set_aside_and_everything_else_goes_on(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream, other_stream = author.create(TAGS), author.create(READINGS)
    _, early = author.register(stream, tag_is("a"))
    _, elsewhere = author.register(other_stream, above(2.0))
    meanings = {early: has_tag("a")}
    with running(store, spark) as engine:
        engine.wait_for(author.publish(stream, tags(["a", "b"])), 180)
        bad, _ = fill(author, stream, UNBUILDABLE)
        worse, _ = fill(author, stream, UNPROBEABLE)
        _, late = author.register(stream, tag_is("b"))
        meanings[late] = has_tag("b")
        author.publish(other_stream, readings([1], [3.0]))
        engine.wait_for(author.publish(stream, tags(["b", "a"])), 180)
        engine.wait_idle(180)
        assert_joined(store, stream, meanings)
        assert matched(store, elsewhere) == [0]
        entries = {entry.id: entry for entry in quarantine(store).entries}
        assert entries.keys() == {bad, worse}
        assert "UnicodeEncodeError" in entries[bad].reason and entries[bad].reason.isascii()
        assert "querystem/" in entries[worse].reason and "nowhere" not in entries[worse].reason
        assert {entry.stream_id for entry in entries.values()} == {stream}
        assert covered(store, stream, bad) == [] and matched(store, bad) == []
    # An engine that starts later finds it in the epoch, and does not try it again.
    with running(store, spark, retries=0) as engine:
        engine.wait_for(author.publish(stream, tags(["a", "c"])), 180)
        engine.wait_idle(180)
        assert_joined(store, stream, meanings)
        assert {entry.id for entry in quarantine(store).entries} == {bad, worse}
    # The release and rows that fail with it come in one step.
    before = {entry.id: entry.since for entry in quarantine(store).entries}
    release(store, [f"predicate-{bad}"])
    last = author.publish(stream, tags(["a"]))
    assert {entry.id for entry in quarantine(store).entries} == {worse}
    with running(store, spark, retries=0) as engine:
        engine.wait_for(last, 180)
        engine.wait_idle(180)
        after = {entry.id: entry.since for entry in quarantine(store).entries}
        assert after[worse] == before[worse]
        assert after[bad] > before[bad], "it was tried, and set aside again"
        assert_joined(store, stream, meanings)


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_restarted", [False, True], ids=["kept", "coverage restarted"])
def test_a_predicate_that_is_released_meets_all_rows(
    store: Store, author: Author, spark: SparkSession, is_restarted: bool
) -> None:
    stream = author.create(TAGS)
    _, first = author.register(stream, tag_is("a"))
    _, second = author.register(stream, tag_is("b"))
    _, third = author.register(stream, tag_is("c"))
    meanings = {id_: has_tag(text) for id_, text in ((first, "a"), (second, "b"), (third, "c"))}
    with running(store, spark) as engine:
        engine.wait_for(author.publish(stream, tags(["a", "b", "c"])), 180)
    ledger = open_ledger(store)
    set_aside(ledger, [QuarantineEntry(PREDICATE, second, stream, "a test")], ledger.state)
    if is_restarted:
        restart_coverage(open_ledger(store))
    with running(store, spark) as engine:
        engine.wait_for(author.publish(stream, tags(["b", "a", "c"])), 180)
        engine.wait_idle(180)
        assert_joined(
            store, stream, {predicate: meanings[predicate] for predicate in (first, third)}
        )
        # What it has met stays, unless everything is matched again.
        assert covered(store, stream, second) == ([] if is_restarted else [(0, 3)])
        assert matched(store, second) == ([] if is_restarted else [1])
        release(store, [f"predicate-{second}"])
        engine.wait_for(author.publish(stream, tags(["b"])), 180)
        engine.wait_idle(180)
        assert_joined(store, stream, meanings)
        assert not quarantine(store).entries


# ---- what is set aside, and what is not


def test_a_reason_quotes_no_value_and_can_be_printed_anywhere() -> None:
    assert reason_of(ValueError("Annabella")) == "ValueError"
    try:
        decode(b"Annabella")
    except Exception as error:
        reason = reason_of(error)
    assert "Annabella" not in reason and reason.isascii() and reason.isprintable()
    assert re.fullmatch(r"\w+ in results/bitmaps\.py, line \d+(, by \w+\.\w+)?", reason)


def _fails(job: SparkJob, unit: str) -> list[Outcome]:
    raise ValueError(unit)


def _fails_once(job: SparkJob, unit: str) -> list[Outcome]:
    """Fail in a process that has an index, as if that were damaged."""
    predicates = predicates_of(job.root)
    is_first = predicates._version < 0
    predicates.advance(job.predicates, job.excluded)
    if not is_first:
        raise ValueError("a damaged index")
    return []


def _lacks_memory(job: SparkJob, unit: str) -> list[Outcome]:
    raise MemoryError


def _dies(job: SparkJob, unit: str) -> list[Outcome]:
    os._exit(9)


def _finds_no_file(job: SparkJob, unit: str) -> list[Outcome]:
    raise FileNotFoundError(unit)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("work", "expected"),
    [(_fails, TaskFailed), (_lacks_memory, WorkerDied), (_dies, WorkerDied)],
)
def test_a_unit_that_fails_without_predicates_has_no_cause(
    store: Store, spark: SparkSession, work: Any, expected: type[Exception]
) -> None:
    job = SparkJob(str(store.root), 0, False)
    with pytest.raises(expected) as failed:
        run_tasks(spark, job, work, ["x"])
    assert suspects(spark, failed.value, 0) == suspects(spark, failed.value, 1) == []


@pytest.mark.spark
def test_errors_of_files_are_no_failed_unit(store: Store, spark: SparkSession) -> None:
    job = SparkJob(str(store.root), 0, False)
    with pytest.raises(Exception) as error:
        run_tasks(spark, job, _finds_no_file, ["x"])
    assert not isinstance(error.value, TaskFailed | WorkerDied)


@pytest.mark.spark
def test_a_damaged_index_is_made_again_in_the_task(store: Store, spark: SparkSession) -> None:
    job = SparkJob(str(store.root), 0, False)
    # The units are in one task each, so at least one of a worker's tasks finds an index.
    for _ in range(3):
        outcomes = run_tasks(spark, job, _fails_once, ["x", "y"])
        assert all(isinstance(outcome, Spent) for outcome in outcomes)


@pytest.mark.spark
def test_a_failure_without_a_cause_stops_the_engine_as_before(
    store: Store, author: Author, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = author.create(TAGS)
    monkeypatch.setattr("psoup.engine.steps.step.fresh", _fails)
    with running(store, spark, retries=1) as engine, pytest.raises(EngineFailed):
        engine.wait_for(author.publish(stream, tags(["a"])), 180)
    assert not quarantine(store).entries


def _live_texts(job: SparkJob) -> str:
    predicates = predicates_of(job.root)
    predicates.advance(job.predicates, job.excluded)
    streams = [predicates._complete(predicates._of(id_)) for id_ in predicates.streams()]
    parts = [texts.to_pylist() for stream in streams for _, texts in stream.parts()]
    return " ".join(text for part in parts for text in part)


def _with_killers(work: Any) -> Any:
    """Return work that some predicates kill, and that two let fail only together."""

    def run(job: SparkJob, unit: Any) -> list[Outcome]:
        texts = _live_texts(job)
        if '"deadly"' in texts:
            os._exit(9)
        if '"first"' in texts and '"second"' in texts:
            raise ValueError("first and second")
        outcomes: list[Outcome] = work(job, unit)
        return outcomes

    return run


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "place", ["steps.step.fresh", "matching.backfill.backfill", "maintain.merge.merge_run"]
)
def test_what_kills_workers_or_fails_only_together_is_set_aside(
    store: Store,
    author: Author,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    """In a step, in back-fill and in a merge."""
    stream, meanings = author.create(TAGS), dict[int, Meaning]()
    module, _, name = f"psoup.engine.{place}".rpartition(".")
    work = getattr(importlib.import_module(module), name)
    monkeypatch.setattr(f"{module}.{name}", _with_killers(work))
    with running(store, spark, merge_files=2, retries=1) as engine:
        engine.wait_for(author.publish(stream, tags(["a", "first", "second", "deadly"])), 300)
        texts = ("a", "first", "deadly", "second")
        ids = {text: author.register(stream, tag_is(text))[1] for text in texts}
        meanings.update((id_, has_tag(text)) for text, id_ in ids.items())
        for _ in range(3):
            engine.wait_for(author.publish(stream, tags(["second", "deadly", "a"])), 300)
        engine.wait_idle(300)
    bad = {ids["deadly"], ids["second"]}
    entries = {entry.id: entry.reason for entry in quarantine(store).entries}
    assert entries.keys() == bad
    assert entries[ids["deadly"]] == "the worker process died"
    assert entries[ids["second"]].startswith("ValueError in psoup/")
    good = {id_: meaning for id_, meaning in meanings.items() if id_ not in bad}
    assert_joined(store, stream, good)
    # Released with a version in which they work, they meet the rows that they missed.
    monkeypatch.undo()
    release(store, [f"predicate-{id_}" for id_ in bad])
    with running(store, spark, merge_files=2) as engine:
        engine.wait_for(author.publish(stream, tags(["second", "deadly"])), 300)
        engine.wait_idle(300)
    assert_joined(store, stream, meanings)


def _search(store: Store, monkeypatch: pytest.MonkeyPatch, fails: Any, count: int = 100) -> Any:
    """Return a search among predicates; `fails` decides whether a set of them fails."""

    class Known:
        def advance(self, version: int, excluded: object = ()) -> None: ...

        def forget(self) -> None: ...

        def streams(self) -> list[int]:
            return [7]

        def live(self, stream_id: int) -> Any:
            return np.arange(count)

    def attempt(job: SparkJob) -> str | None:
        included = set(range(count)) - {int(id_) for id_ in job.excluded}
        return f"ValueError: {sorted(included)[-1]}" if fails(included) else None

    monkeypatch.setattr("psoup.engine.repair.culprits.predicates_of", lambda root: Known())
    return partial(Search, SparkJob(str(store.root), 0, False), None, attempt)


def test_all_that_fail_by_themselves_are_found(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = {3, 4, 71, 99}
    search = _search(store, monkeypatch, lambda included: bool(included & bad))
    for by_itself in (False, True):
        entries = search(by_itself=by_itself).causes("the first reason")
        assert [(entry.id, entry.stream_id, entry.reason) for entry in entries] == [
            (id_, 7, f"ValueError: {id_}") for id_ in sorted(bad)
        ]


def test_of_predicates_that_fail_together_the_last_is_found(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = _search(store, monkeypatch, lambda included: {5, 30, 62} <= included)
    assert [entry.id for entry in search().causes("a reason")] == [62]
    # If that is a worker's death, the work is too much, and none of them is the cause.
    assert search(by_itself=True).causes("a reason") == []


def test_a_long_search_ends_with_what_it_has(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psoup.engine.repair.culprits._SEARCH_SECONDS", 0.0)
    search = _search(store, monkeypatch, lambda included: bool(included & {3, 71}))
    assert [entry.id for entry in search().causes("a reason")] == [3]


def test_what_does_not_repeat_is_no_cause(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = iter([False] + [True] * 3)
    search = _search(store, monkeypatch, lambda included: next(failing, False), count=8)
    assert search(by_itself=True).causes("a reason") == []


def test_cohorts_keep_predicates_in_quarantine_apart() -> None:
    cohorts = Cohorts()
    tables = [
        cohorts.start(1, Cohort.since(1, 5, 10), [3]),
        cohorts.start(1, Cohort.since(5, 8, 10)),
    ]
    expected = [Cohort.since(1, 3, 10), Cohort(3, 4, ()), Cohort.since(4, 8, 10)]
    assert cohorts.cohorts(1) == expected
    assert Cohorts.load(pa.concat_tables(tables)).cohorts(1) == expected
    cohorts.close(1, [3, 7], 20)
    assert cohorts.cohorts(1)[-1] == Cohort(7, 8, ((10, 20),))
    tables = [cohorts.table(), cohorts.reopen(1, 3, 25), cohorts.reopen(1, 7, 25)]
    # Of the last one, back-fill wants the rows while it was in quarantine, and those before it.
    last = Cohort(7, 8, ((10, 20), (25, OPEN)))
    assert cohorts.cohorts(1)[1:] == [Cohort.since(3, 4, 25), Cohort.since(4, 7, 10), last]
    assert last.gaps == [(0, 10), (20, 25)]
    assert Cohorts.load(pa.concat_tables(tables)).cohorts(1) == cohorts.cohorts(1)
    # Released before any row came, it is as if it had never been there.
    cohorts.close(1, [4], 30)
    cohorts.reopen(1, 4, 30)
    assert Cohort.since(4, 7, 10) in cohorts.cohorts(1)
