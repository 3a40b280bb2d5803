"""Queued patches over the rows beneath them: those of the copy, and own ones queued before.

A patch is evaluated only if all columns that the copy's query reads are known: from the patch, or
as plain columns of the answer. What becomes of other patches can't be said on the device.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from client_sdk._wire.rows import BATCH_COLUMNS
from client_sdk._wire.values import from_micros
from client_sdk.copies._overlay.own_rows import OwnRow

if TYPE_CHECKING:
    import pyarrow as pa

    from client_sdk.copies._overlay.evaluate import OwnQuery

_BATCH_NAMES = frozenset(column.name for column in BATCH_COLUMNS)


@dataclass(frozen=True, slots=True)
class Beneath:
    """The row that a patch finds: its values as the answer has them, and its ts."""

    values: Sequence[Any]
    ts: int


@dataclass(frozen=True, slots=True)
class OwnEdit:
    """An own row in the order of queuing. `ts` is that of the row, or of its arrival."""

    row: OwnRow
    ts: int
    is_rejected: bool


def evaluate_patches(
    query: OwnQuery,
    edits: Iterable[OwnEdit],
    in_copy: Mapping[int, Beneath],
    sets_of: Callable[[int], dict[str, Any]],
    arrival: int,
) -> tuple[dict[int, OwnRow], frozenset[int]]:
    """Return the patches among own edits, evaluated, by id; and the ids of those that can't be.

    `in_copy` are the rows of the copy by the digests of their keys, `sets_of` returns the values
    that a patch sets. The edits of a key are evaluated one after the other, those of all keys
    together.
    """
    by_key: dict[int | None, list[OwnEdit]] = defaultdict(list)
    # What was refused is shown on top of the rest.
    for edit in sorted(edits, key=lambda edit: (edit.is_rejected, edit.row.row_id)):
        by_key[edit.row.key].append(edit)
    beneath: dict[int | None, Beneath | None] = {key: in_copy.get(key or 0) for key in by_key}
    done: dict[int, OwnRow] = {}
    unchecked: set[int] = set()
    while by_key:
        patches = []
        for key, waiting in list(by_key.items()):
            while waiting and not waiting[0].row.is_patch:
                edit = waiting.pop(0)
                beneath[key] = _after(edit, beneath[key])
            if not waiting:
                del by_key[key]
                continue
            edit, row = waiting.pop(0), beneath[key]
            known = None if row is None else _known(query, row)
            sets = sets_of(edit.row.row_id)
            if known is None or not query.reads <= known.keys() | sets.keys():
                unchecked.add(edit.row.row_id)
                # Nor can be said what later patches of the key find.
                beneath[key] = None
                continue
            patches.append((edit, sets, known))
        rows = query.merged([(e.row.row_id, sets, known) for e, sets, known in patches], arrival)
        for (edit, _, _), row_of_patch in zip(patches, rows, strict=True):
            done[edit.row.row_id] = row_of_patch
            ts = edit.ts if row_of_patch.ts is None else row_of_patch.ts
            beneath[edit.row.key] = Beneath(row_of_patch.values, ts)
    return done, frozenset(unchecked)


def _after(edit: OwnEdit, before: Beneath | None) -> Beneath | None:
    """Return the row of a key after an own row or delete, which may be a late one."""
    if before is not None and edit.row.ts is not None and edit.row.ts < before.ts:
        return before
    return None if edit.row.is_delete else Beneath(edit.row.values, edit.ts)


def _known(query: OwnQuery, row: Beneath) -> dict[str, Any]:
    known = query.column_values(row.values)
    if query.schema.ts_is_stamp:
        return known
    return known | {query.schema.event_time: from_micros(row.ts)}


def sets_of_row(table: pa.Table, place: int) -> dict[str, Any]:
    """Return the values that a patch at a place of a table sets, with its key."""
    [row] = table.slice(place, 1).to_pylist()
    return {name: value for name, value in row.items() if name not in _BATCH_NAMES}
