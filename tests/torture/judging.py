"""The proof of a life: acknowledged rows are stored once, and every answer was right."""

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
    """The rows of one stream in the order of their ids, and their number at a position."""

    def __init__(self, stream: str, batches: Sequence[TakenBatch], instants: Sequence[int]) -> None:
        """`instants` are the ts, in microseconds, of the rows by id."""
        self._positions: list[Position] = []
        self._highs: list[int] = []
        self.rows: list[Row] = []
        for batch in sorted(batches, key=lambda taken_batch: taken_batch.position):
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
    """Compare the tables with the ledger; return the histories. The engine must have stored all
    rows."""
    by_stream = {}
    for stream in client.streams():
        batches = ledger.batches.get(stream.name, [])
        stem = tables.stem(stream.id).sort_by("_row_id") if batches else None
        instants = [] if stem is None else stem.column("_ts").cast("int64").to_pylist()
        history = StreamHistory(stream.name, batches, instants)
        if stem is not None:
            assert stem.column("_row_id").to_pylist() == list(range(len(history.rows)))
            assert stem.column("n").to_pylist() == [row["n"] for row in history.rows]
            assert stem.column("x").to_pylist() == [row["x"] for row in history.rows]
        by_stream[stream.name] = history
    assert by_stream.keys() == DEFINITIONS.keys()
    return by_stream


def check_registrations(client: Client, ledger: Ledger) -> None:
    """Assert that acknowledged registrations exist with their texts, and that ended ones don't."""
    registered = {registration.handle: registration.sql for registration in client.registrations()}
    missing = ledger.registered.keys() - registered.keys()
    assert not missing, f"{len(missing)} acknowledged registrations are gone"
    for handle, sql in ledger.registered.items():
        assert registered[handle] == sql


def wrong_answers(histories: dict[str, StreamHistory], ledger: Ledger) -> list[str]:
    """Return a sentence for each answer that is not the naive one."""
    wrong = []
    for answer in ledger.answers:
        if problem := _problem(histories, answer):
            at = f"{answer.position}, {answer.now}"
            wrong.append(f"{answer.source}: {answer.question.sql} at {at}: {problem}")
    return wrong


def _problem(histories: dict[str, StreamHistory], answer: GivenAnswer) -> str:
    schema = schema_of(answer.question.schema.name)
    history = histories[schema.name]
    rows = history.until(answer.position)
    if schema.ordered_by and answer.now is not None:
        reached = max((row["ts"] for row in rows), default=None)
        if reached != to_micros(answer.now):
            return f"NOW is {answer.now}, and its rows reach {reached}"
    every = history.rows if schema.key else ()
    return difference(answer.question.naive(rows, answer.now, every=every), answer.values)


def judge(client: Client, ledger: Ledger, tables: Tables) -> None:
    """Raise AssertionError with the first few wrong answers."""
    by_stream = histories(client, ledger, tables)
    check_registrations(client, ledger)
    wrong = wrong_answers(by_stream, ledger)
    listed = "\n".join(wrong[:_SHOWN])
    assert not wrong, f"{len(wrong)} of {len(ledger.answers)} answers are wrong:\n{listed}"
