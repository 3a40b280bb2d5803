"""What a task tells the driver: the files it wrote, and the payloads it could not read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from psoup.store.datafile import DataFile


@dataclass(frozen=True, slots=True)
class Written:
    """A file, synced and waiting for its commit. `table` is a name as the ledger has it."""

    table: str
    file: DataFile


@dataclass(frozen=True, slots=True)
class Undecodable:
    """The ids of this payload stay empty."""

    problem: str


Outcome = Written | Undecodable


def by_table(outcomes: Iterable[Outcome]) -> dict[str, list[DataFile]]:
    """The files to commit, table by table."""
    files: dict[str, list[DataFile]] = {}
    for outcome in outcomes:
        if isinstance(outcome, Written):
            files.setdefault(outcome.table, []).append(outcome.file)
    return files
