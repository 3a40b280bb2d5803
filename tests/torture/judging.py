"""The proof of a life: what was taken is there once, and every answer was right."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from client_sdk import Client
from datastem.instants import to_micros
from psoup.store import Position
from tests.oracle.comparing import difference
from tests.system.test_open_state import Tables
from tests.torture.ledger import GivenAnswer, Ledger, Row, TakenBatch
from tests.torture.workload import DEFINITIONS, schema_of

_SHOWN = 5


class StreamHistory:
    """The rows of one stream in the order of their ids, and how many there were at a position."""

    def __init__(self, stream: str, batches: Sequence[TakenBatch], instants: Sequence[int]) -> None:
        """`instants` are the ts, in microseconds, of the rows by id."""
        self._positions: list[Position] = []
        self._highs: list[int] = []
        self.rows: list[Row] = []
        for batch in sorted(batches, key=lambda one: one.position):
            assert batch.first_row_id == len(self.rows), (
                f"{stream}: ids {len(self.rows)} to {batch.first_row_id} are nobody's, or twice"
            )
            for row in batch.rows:
                row_id = len(self.rows)
                self.rows.append(row | {"row_id": row_id, "ts": instants[row_id]})
            self._positions.append(batch.position)
            self._highs.append(len(self.rows))

    def until(self, position: Position) -> list[Row]:
        place = bisect_right(self._positions, position)
        return self.rows[: self._highs[place - 1]] if place else []


def histories(client: Client, ledger: Ledger, tables: Tables) -> dict[str, StreamHistory]:
    """Holds the tables against the ledger. The engine must have stored everything."""
    found = {}
    for stream in client.streams():
        batches = ledger.batches.get(stream.name, [])
        stem = tables.stem(stream.id).sort_by("_row_id") if batches else None
        instants = [] if stem is None else stem.column("_ts").cast("int64").to_pylist()
        history = StreamHistory(stream.name, batches, instants)
        if stem is not None:
            assert stem.column("_row_id").to_pylist() == list(range(len(history.rows)))
            assert stem.column("n").to_pylist() == [row["n"] for row in history.rows]
            assert stem.column("x").to_pylist() == [row["x"] for row in history.rows]
        found[stream.name] = history
    assert found.keys() == DEFINITIONS.keys()
    return found


def check_registrations(client: Client, ledger: Ledger) -> None:
    """Every acknowledged registration is there with its text, and those that were ended are not."""
    there = {one.handle: one.sql for one in client.registrations()}
    missing = ledger.registered.keys() - there.keys()
    assert not missing, f"{len(missing)} acknowledged registrations are gone"
    for handle, sql in ledger.registered.items():
        assert there[handle] == sql


def wrong_answers(found: dict[str, StreamHistory], ledger: Ledger) -> list[str]:
    """A sentence for each answer that is not the naive one."""
    wrong = []
    for given in ledger.answers:
        if problem := _problem(found, given):
            wrong.append(
                f"{given.source}: {given.question.sql} at {given.position}, {given.now}: {problem}"
            )
    return wrong


def _problem(found: dict[str, StreamHistory], given: GivenAnswer) -> str:
    schema = schema_of(given.question.schema.name)
    history = found[schema.name]
    rows = history.until(given.position)
    if schema.ordered_by and given.now is not None:
        reached = max((row["ts"] for row in rows), default=None)
        if reached != to_micros(given.now):
            return f"NOW is {given.now}, and its rows reach {reached}"
    every = history.rows if schema.key else ()
    return difference(given.question.naive(rows, given.now, every=every), given.values)


def judge(client: Client, ledger: Ledger, tables: Tables) -> None:
    """Raises AssertionError with the first few things that are wrong."""
    found = histories(client, ledger, tables)
    check_registrations(client, ledger)
    wrong = wrong_answers(found, ledger)
    shown = "\n".join(wrong[:_SHOWN])
    assert not wrong, f"{len(wrong)} of {len(ledger.answers)} answers are wrong:\n{shown}"
