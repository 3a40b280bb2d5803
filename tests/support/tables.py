"""The tables that the engine writes after a step, without an engine."""

from __future__ import annotations

from psoup.store import Epoch, State, Store, StreamMark, Touched
from psoup.store.delta.files import write_data_file
from psoup.store.tables import changed_rows


def write_changes(store: Store, state: State, touched: Touched, versions: dict[str, int]) -> None:
    """Append the rows that changed to their tables; `versions` has the last version of each."""
    for name, rows in changed_rows(state, touched, state.position).items():
        folder = store.table(name)
        versions[name] = versions.get(name, 0) + 1
        file = write_data_file(folder.root, rows, sync=False)
        folder.commit(versions[name], [file], operation="TEST", sync=False)


def epoch_of(state: State, versions: dict[str, int]) -> Epoch:
    """Return the first epoch, which names these versions of the tables."""
    marks = {stream.id: StreamMark.of(stream, 0) for stream in state.streams.values()}
    return Epoch(
        1, "step", 1, state.position, state.clock, 7,
        state.next_predicate_id, versions, marks, state.leases.outages, state.jumps,
    )  # fmt: skip
