"""The schema of a stream: its columns, its stream key, its time, how long rows are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from datastem.constants import Constant, constant_from_json, constant_to_json
from datastem.instants import HOUR
from datastem.types import BIGINT, TEXT, TIMESTAMP, Kind, Type, parse_type

# Every row has these; a query may use them like any column.
SYSTEM_COLUMNS: Mapping[str, Type] = {"ts": TIMESTAMP, "row_id": BIGINT}

# The column that says whether a row is a row or, in a stream with a stream key, a delete. A patch
# is never stored: it is completed to a row first.
OP = "_op"
OP_ROW = 0
OP_DELETE = 1
OP_PATCH = 2

# The column that says which row of its stream key an edit expects to be the current one: a row id,
# or NO_ROW if it expects none. NULL is no condition.
EXPECTED = "_expected"
NO_ROW = -1

# Zeros for the values of a block, 16 bytes each.
_SHARED_ROWS = 1 << 16
_ZEROS = pa.py_buffer(bytes(16 * _SHARED_ROWS))


@dataclass(frozen=True, slots=True)
class FormerLabel:
    """A label that a column had before the ALTER STREAM at the packed position `ended`. Batches may
    use it before the instant `accepted_until`."""

    label: str
    ended: int
    accepted_until: int


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a stream.

    `since` is the packed log position of the ALTER STREAM that added it, 0 for a column of CREATE
    STREAM. Batches may leave out an added column: their rows, and all earlier ones, have its
    `default`.

    `name` never changes: files, the log and bound queries have it. Texts, batches and people use
    `label`, which RENAME COLUMN changes; `former` are the earlier labels, in their order.
    """

    name: str
    type: Type
    since: int = 0
    default: Constant = None
    renamed: str = ""
    former: tuple[FormerLabel, ...] = ()

    def __hash__(self) -> int:
        # Columns of equal names are compared; to hash their types would take longer, at each look
        # into a cache.
        return hash(self.name)

    @property
    def label(self) -> str:
        """The name that people use."""
        return self.renamed or self.name

    def label_at(self, position: int) -> str:
        """Return the label that the column had at a packed position."""
        return next((old.label for old in self.former if old.ended > position), self.label)

    @property
    def is_optional(self) -> bool:
        """Whether a batch may leave the column out."""
        return self.since > 0

    def fill(self, rows: int) -> pa.Array:
        """Return the values of the column for rows that were published without it."""
        if self.default is not None:
            return pa.repeat(pa.scalar(self.default, self.type.arrow), rows)
        # NULLs are zeros in every buffer, so that columns and blocks can share one.
        if self.type.kind is Kind.TEXT or rows > _SHARED_ROWS:
            return pa.nulls(rows, self.type.arrow)
        return pa.Array.from_buffers(self.type.arrow, rows, [_ZEROS, _ZEROS], rows)

    def is_default(self, values: pa.Array) -> bool:
        """Return True if all values, which have the column's type, are those of `fill`."""
        if self.default is None or values.null_count:
            return bool(values.null_count == len(values) and self.default is None)
        filled = self.fill(len(values))
        if self.type.kind is Kind.DOUBLE:
            # By their bits: -0.0 equals 0.0, and is stored as it is.
            return bool(values.view(pa.int64()).equals(filled.view(pa.int64())))
        return bool(values.equals(filled))

    def to_json(self) -> list[Any]:
        """Return `[name, type]`, and the rest only if there is more than these."""
        form: list[Any] = [self.name, str(self.type)]
        if self == Column(self.name, self.type):
            return form
        former = [[old.label, old.ended, old.accepted_until] for old in self.former]
        default = constant_to_json(self.default)
        more = {"since": self.since, "default": default, "renamed": self.renamed, "former": former}
        return [*form, more]

    @classmethod
    def from_json(cls, form: list[Any]) -> Column:
        name, text, *more = form
        type_ = parse_type(text)
        if not more:
            return cls(name, type_)
        (details,) = more
        default = constant_from_json(details["default"], type_)
        former = tuple(FormerLabel(*old) for old in details["former"])
        return cls(name, type_, details["since"], default, details["renamed"], former)


@dataclass(frozen=True, slots=True)
class Validity:
    """The columns with the instants from which, and before which, a row is valid; without the
    latter it is for ever. A row is retained until `retain` after its validity has ended; None is
    for ever."""

    starts: str
    ends: str
    retain: int | None = None


# The columns that a batch may have beside those of its stream.
BATCH_COLUMNS = (Column(OP, TEXT), Column(EXPECTED, BIGINT))


@dataclass(frozen=True)
class StreamSchema:
    """A stream as CREATE STREAM declared it and ALTER STREAM changed it. Durations are
    microseconds.

    `ordered_by` names the event-time column, or is None if a row's ts is the stamp of its arrival.
    With event time NOW is the clock if `by_clock`. Otherwise a row takes it to its ts minus the
    `slack`, and at most `lead` past the stamp of its arrival; None is no limit.
    `retain` is None if rows are kept for ever. `key` is the stream key, empty if there is none; a
    row replaces the earlier row of its stream key. With a `validity` windows choose rows by that,
    and so does retention: `retain` then is None, but with a stream key also how long a row is
    retained after it was replaced.

    `whole_from` is the least ts whose rows, in a keyed stream the least end, no earlier and shorter
    RETAIN has let go; None if there was no such RETAIN. With a `source`, only publishers of that
    name or of names below it, of the owner `source_owner`, may publish. `dropped` are columns that
    files and batches of the log may still have: each has its last label among its `former` ones,
    until the position of the DROP COLUMN.

    Columns, `key`, `ordered_by` and `validity` have the names that never change. `labelled` is the
    stream as people see it.
    """

    name: str
    columns: tuple[Column, ...]
    ordered_by: str | None = None
    retain: int | None = None
    ahead: int = HOUR
    key: tuple[str, ...] = ()
    whole_from: int | None = None
    source: str = ""
    source_owner: str = ""
    dropped: tuple[Column, ...] = ()
    by_clock: bool = False
    slack: int = 0
    lead: int | None = None
    validity: Validity | None = None

    def __hash__(self) -> int:
        """Hash the name alone: schemas are keys of caches, and this is cheap."""
        return hash(self.name)

    # ---- its time: nothing outside asks whether there is an `ordered_by`

    @property
    def ts_is_stamp(self) -> bool:
        """Whether the ts of a row is the stamp of its arrival, not its event time."""
        return self.ordered_by is None

    @property
    def now_is_clock(self) -> bool:
        """Whether NOW of the stream is the clock, not as far as its rows have come."""
        return self.ordered_by is None or self.by_clock

    @property
    def rows_wait(self) -> bool:
        """Whether a row may be later than NOW, so that it enters every window by time."""
        return self.by_clock or self.slack > 0 or self.lead is not None

    def limited(self, instant: int, stamp: int) -> int:
        """Return how far an event that was stamped so takes NOW, if it brings an instant."""
        return instant if self.lead is None else min(instant, stamp + self.lead)

    @property
    def retention(self) -> int | None:
        """How long rows are retained after their ts, their end or their validity; None: for
        ever."""
        return self.retain if self.validity is None else self.validity.retain

    @property
    def event_time(self) -> str:
        """The column with the event time, of a stream that has one."""
        assert self.ordered_by is not None, "the ts of this stream is its stamp"
        return self.ordered_by

    @cached_property
    def arrow(self) -> pa.Schema:
        """The declared columns, in order."""
        return pa.schema([(column.name, column.type.arrow) for column in self.columns])

    @cached_property
    def payload(self) -> pa.Schema:
        """The columns of a batch in the log: the declared ones, preceded by `_op` if there is a
        stream key. A batch may lack optional ones."""
        return pa.schema([*([(OP, pa.int8())] if self.key else []), *self.arrow])

    @cached_property
    def types(self) -> dict[str, Type]:
        """Every name a query may use: declared columns, `ts` and `row_id`."""
        return {**SYSTEM_COLUMNS, **{column.name: column.type for column in self.columns}}

    @cached_property
    def optional(self) -> dict[str, Column]:
        """The columns that ALTER STREAM added, by name: files and batches may lack them."""
        return {column.name: column for column in self.columns if column.is_optional}

    @cached_property
    def labels(self) -> dict[str, str]:
        """The names of columns by label, in order."""
        return {column.label: column.name for column in self.columns}

    @cached_property
    def labelled(self) -> StreamSchema:
        """The stream as people see it: each column is named by its label."""
        if not any(column.renamed for column in self.columns):
            return self
        label = {column.name: column.label for column in self.columns}
        return replace(
            self,
            columns=tuple(replace(c, name=c.label, renamed="") for c in self.columns),
            ordered_by=label.get(self.ordered_by) if self.ordered_by else None,
            key=tuple(label[name] for name in self.key),
            validity=None
            if self.validity is None
            else replace(
                self.validity, starts=label[self.validity.starts], ends=label[self.validity.ends]
            ),
        )

    def label(self, name: str) -> str:
        """Return the label of a column by its name; other names are their own."""
        return next((column.label for column in self.columns if column.name == name), name)

    @cached_property
    def has_former_labels(self) -> bool:
        """Whether batches may ever use other labels than the present ones."""
        return bool(self.dropped) or any(column.former for column in self.columns)

    def renaming(self, label: str) -> str:
        """Return what became of a column that has had a label, as a sentence; empty if none has."""
        for column in self.columns:
            if any(old.label == label for old in column.former):
                return f"{label} was renamed to {column.label}"
        was_dropped = any(old.label == label for column in self.dropped for old in column.former)
        return f"{label} was dropped from {self.name}" if was_dropped else ""

    def accepted_labels(self, clock: int) -> dict[str, Column]:
        """Return the columns by the labels that batches may use at an instant; among them are those
        of dropped columns."""
        accepted = {
            old.label: column
            for column in (*self.dropped, *self.columns)
            # A label that ended twice is accepted as the last time says.
            for old in {old.label: old for old in column.former}.values()
            if old.accepted_until > clock
        }
        return accepted | {column.label: column for column in self.columns}

    @cached_property
    def with_dropped(self) -> StreamSchema:
        """The schema by which rows are read that may have values of dropped columns."""
        if not self.dropped:
            return self
        # A position from 1 on makes a column optional: files and batches may lack it.
        optional = (replace(column, since=max(1, column.since)) for column in self.dropped)
        return replace(self, columns=(*self.columns, *optional), dropped=())

    @cached_property
    def altered_at(self) -> int:
        """The packed position of the newest change of its columns; 0 without one."""
        columns = (*self.columns, *self.dropped)
        ended = [old.ended for column in columns for old in column.former]
        return max((*ended, *(column.since for column in self.columns)), default=0)

    def at(self, position: int) -> StreamSchema:
        """Return the schema with the columns of a packed position that it still has, under the
        labels that they had then."""
        if self.altered_at <= position:
            return self
        return replace(
            self,
            columns=tuple(
                replace(column, renamed=column.label_at(position))
                for column in self.columns
                if column.since <= position
            ),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "columns": [column.to_json() for column in self.columns],
            "ordered_by": self.ordered_by,
            "retain": self.retain,
            "ahead": self.ahead,
            "key": list(self.key),
            "whole_from": self.whole_from,
            "source": self.source,
            "source_owner": self.source_owner,
            "dropped": [column.to_json() for column in self.dropped],
            "by_clock": self.by_clock,
            "slack": self.slack,
            "lead": self.lead,
            "validity": None if self.validity is None else list(astuple(self.validity)),
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> StreamSchema:
        return cls(
            name=form["name"],
            columns=tuple(map(Column.from_json, form["columns"])),
            ordered_by=form["ordered_by"],
            retain=form["retain"],
            ahead=form["ahead"],
            key=tuple(form["key"]),
            whole_from=form["whole_from"],
            source=form["source"],
            source_owner=form["source_owner"],
            dropped=tuple(map(Column.from_json, form["dropped"])),
            by_clock=form["by_clock"],
            slack=form["slack"],
            lead=form["lead"],
            validity=None if form.get("validity") is None else Validity(*form["validity"]),
        )
