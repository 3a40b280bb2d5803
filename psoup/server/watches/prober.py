"""New rows against the predicates of all sleepers: a query SteM for each stream, in a thread.

One thread changes and probes the SteMs, in the order of the tasks. Batches that wait at once are
one probe.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.codec import are_rows, query_view
from psoup.store.state.quarantine import MACHINE_ERRORS
from querystem.expressions import Expression
from querystem.index import Matches, QueryStem

log = logging.getLogger("psoup.server")

# Rows that are probed together, and bytes of a stream's rows that may wait.
_PROBE_ROWS = 4096
MAX_WAITING_BYTES = 64 << 20
# Changes of predicates that are worth a visit to the thread.
_MIN_CHANGES = 64


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """A predicate matches new rows of a stream, whose ts are from `least` to `most`."""

    stream_id: int
    predicate_id: int
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class _Insert:
    stream_id: int
    predicate_id: int
    where: Expression


@dataclass(frozen=True, slots=True)
class _Remove:
    stream_id: int
    predicate_id: int


@dataclass(frozen=True, slots=True)
class _Probe:
    stream_id: int
    rows: pa.RecordBatch


_Task: TypeAlias = _Insert | _Remove | _Probe


class Prober:
    """The predicates of sleepers by stream. `report` is called with matches. `fail` is called if
    rows could not be matched; it has to remove all predicates. For the event loop only.

    Rows are probed with the predicates at the time of their turn: at least with those that were
    there when the rows came and are still there.
    """

    def __init__(
        self, report: Callable[[Sequence[MatchedRows]], None], fail: Callable[[], None]
    ) -> None:
        self._report, self._fail = report, fail
        self._thread = ThreadPoolExecutor(1, "watches")
        self._stems = _Stems()
        self._tasks: list[_Task] = []
        self._waiting: dict[int, int] = {}
        self._working: asyncio.Future[list[MatchedRows]] | None = None
        self._stopped = False

    def insert(self, stream_id: int, predicate_id: int, where: Expression) -> None:
        """Take a predicate that is not here."""
        self._tasks.append(_Insert(stream_id, predicate_id, where))
        self._start()

    def remove(self, stream_id: int, predicate_id: int) -> None:
        self._tasks.append(_Remove(stream_id, predicate_id))
        self._start()

    def probe(self, stream_id: int, rows: pa.RecordBatch) -> bool:
        """Queue new rows; return False if too many of the stream wait already, so that these will
        not be matched."""
        waiting = self._waiting.get(stream_id, 0)
        # One batch is always taken, however large, so that its stream can be probed at all.
        if waiting and waiting + rows.nbytes > MAX_WAITING_BYTES:
            return False
        self._waiting[stream_id] = waiting + rows.nbytes
        self._tasks.append(_Probe(stream_id, rows))
        self._start()
        return True

    async def settled(self) -> None:
        """Return when all rows so far were matched."""
        while self._working is not None:
            await asyncio.wait([self._working])
            # The done callback, which reports the matches and may start again, runs in the next
            # round.
            await asyncio.sleep(0)

    def stop(self) -> None:
        self._stopped = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        """Let the thread do the tasks that wait, unless it is at work. Predicates without rows wait
        for more of them."""
        if self._working is not None or self._stopped:
            return
        # Without rows nothing depends on the predicates yet, so they need not be built at once.
        if not self._waiting and len(self._tasks) < _MIN_CHANGES:
            return
        tasks, self._tasks, self._waiting = self._tasks, [], {}
        loop = asyncio.get_running_loop()
        self._working = loop.run_in_executor(self._thread, self._stems.work, tasks)
        self._working.add_done_callback(self._finish)

    def _finish(self, work: asyncio.Future[list[MatchedRows]]) -> None:
        if work.cancelled() or self._stopped:
            self._working = None
            return
        error = work.exception()
        if error is not None:
            log.error("could not match rows for watches; waking all of them", exc_info=error)
            # Nothing is begun with what is left of the SteMs.
            self._fail()
            self._stems, self._tasks, self._waiting = _Stems(), [], {}
            self._working = None
            return
        self._working = None
        self._report(work.result())
        self._start()

    def _check(self, expected: dict[int, set[int]]) -> None:
        """Assert that just these predicates are held; nothing may be under way."""
        assert self._working is None
        self._stems.work(self._tasks)
        self._tasks = []
        assert self._stems.predicate_ids() == {
            stream_id: ids for stream_id, ids in expected.items() if ids
        }


class _StreamStem:
    """The predicates of sleepers over one stream. Those in `blind` can't be built or probed: they
    count as matching every row, so that one bad predicate wakes its own sleepers and no others."""

    def __init__(self) -> None:
        self._stem = QueryStem()
        self._wheres: dict[int, Expression] = {}
        self.blind: set[int] = set()

    @property
    def ids(self) -> set[int]:
        return set(self._wheres)

    def insert(self, predicate_id: int, where: Expression) -> None:
        self._wheres[predicate_id] = where
        try:
            self._stem.insert(predicate_id, where)
        except MACHINE_ERRORS:
            raise
        except Exception:
            log.exception("predicate %d can't be built for watches", predicate_id)
            self._leave_out({predicate_id})

    def remove(self, predicate_id: int) -> None:
        del self._wheres[predicate_id]
        if predicate_id in self.blind:
            self.blind.remove(predicate_id)
        else:
            self._stem.remove(predicate_id)

    def probe(self, view: pa.RecordBatch) -> Matches:
        """Probe the rows with all predicates but the blind ones, which may become more."""
        try:
            return self._stem.probe(view)
        except MACHINE_ERRORS:
            raise
        except Exception:
            log.exception("a predicate can't be matched for watches")
            self._leave_out(set(filter(lambda id_: self._fails(id_, view), self.ids - self.blind)))
            return self._stem.probe(view)

    def _fails(self, predicate_id: int, view: pa.RecordBatch) -> bool:
        """Return whether a predicate fails by itself."""
        alone = QueryStem()
        alone.insert(predicate_id, self._wheres[predicate_id])
        try:
            alone.probe(view)
        except MACHINE_ERRORS:
            raise
        except Exception:
            return True
        return False

    def _leave_out(self, ids: set[int]) -> None:
        self.blind |= ids
        # What a failed change has left of a SteM is not used again.
        self._stem = QueryStem()
        for id_ in self.ids - self.blind:
            self._stem.insert(id_, self._wheres[id_])

    def _check(self) -> None:
        self._stem._check()
        sighted = self.ids - self.blind
        assert len(self._stem) == len(sighted) and all(id_ in self._stem for id_ in sighted)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of several batches. Those from before a column was added have NULL there: who
    sleeps since then has seen them."""
    if len(batches) == 1:
        return batches[0]
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables(tables, promote_options="default").combine_chunks().to_batches()[0]


class _Stems:
    """The query SteMs, by stream. One thread at a time."""

    def __init__(self) -> None:
        self._stems: dict[int, _StreamStem] = {}

    def work(self, tasks: Sequence[_Task]) -> list[MatchedRows]:
        """Do the tasks; rows are probed last, those of a stream together."""
        batches: dict[int, list[pa.RecordBatch]] = {}
        for task in tasks:
            match task:
                case _Insert(stream_id, predicate_id, where):
                    self._stems.setdefault(stream_id, _StreamStem()).insert(predicate_id, where)
                case _Remove(stream_id, predicate_id):
                    self._remove(stream_id, predicate_id)
                case _Probe(stream_id, rows):
                    batches.setdefault(stream_id, []).append(rows)
        return [
            match
            for id_, rows_of_stream in batches.items()
            for match in self._probe(id_, rows_of_stream)
        ]

    def predicate_ids(self) -> dict[int, set[int]]:
        for stem in self._stems.values():
            stem._check()
        return {stream_id: stem.ids for stream_id, stem in self._stems.items()}

    def _remove(self, stream_id: int, predicate_id: int) -> None:
        stem = self._stems[stream_id]
        stem.remove(predicate_id)
        if not stem.ids:
            del self._stems[stream_id]

    def _probe(self, stream_id: int, batches: Sequence[pa.RecordBatch]) -> list[MatchedRows]:
        if stream_id not in self._stems:
            return []
        stem = self._stems[stream_id]
        rows = _joined(batches)
        # Deletes are no rows that a predicate could match. `ts` and `view` then have the same
        # order.
        rows = rows.filter(pa.array(are_rows(rows)))
        ts, view = rows.column("_ts").view(pa.int64()).to_numpy(), query_view(rows)
        # By predicate id: the least and the greatest ts of its matches in all chunks, both
        # inclusive.
        spans: dict[int, tuple[int, int]] = {}
        for first in range(0, rows.num_rows, _PROBE_ROWS):
            chunk = slice(first, first + _PROBE_ROWS)
            for id_, least, most in _spans(stem, view.slice(first, _PROBE_ROWS), ts[chunk]):
                before = spans.get(id_, (least, most))
                spans[id_] = min(before[0], least), max(before[1], most)
        if len(ts):
            spans |= dict.fromkeys(stem.blind, (int(ts.min()), int(ts.max())))
        return [MatchedRows(stream_id, id_, *span) for id_, span in spans.items()]


def _spans(stem: _StreamStem, view: pa.RecordBatch, ts: Int64s) -> list[tuple[int, int, int]]:
    """Return the predicates that match any of the rows, with the least and greatest ts of those."""
    spans: list[tuple[int, int, int]] = []
    for part in stem.probe(view).parts:
        lists = part.lists()
        if len(lists.ids):
            # Where the rows of each predicate begin: all have some, as reduceat needs it.
            # `lists.rows` has the row indexes of all predicates one after the other, `counts` how
            # many each.
            begins = np.cumsum(lists.counts) - lists.counts
            matched = ts[lists.rows]
            least = np.minimum.reduceat(matched, begins)
            most = np.maximum.reduceat(matched, begins)
            spans += zip(lists.ids.tolist(), least.tolist(), most.tolist(), strict=True)
    return spans
