"""What a task tells the driver: files it wrote, rows it lost, files it could not read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from psoup.store.delta.files import DataFile
from psoup.store.state.losses import Hole


@dataclass(frozen=True, slots=True)
class Written:
    """A file, synced and waiting for its commit. `table` is a name as the ledger has it."""

    table: str
    file: DataFile


@dataclass(frozen=True, slots=True)
class Damaged:
    """A file that is damaged or gone, by its path in the store."""

    file: str
    problem: str


Outcome = Written | Hole | Damaged


def by_table(outcomes: Iterable[Outcome]) -> dict[str, list[DataFile]]:
    """The files to commit, table by table."""
    files: dict[str, list[DataFile]] = {}
    for outcome in outcomes:
        if isinstance(outcome, Written):
            files.setdefault(outcome.table, []).append(outcome.file)
    return files
