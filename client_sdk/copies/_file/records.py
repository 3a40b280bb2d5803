"""Records: what the file has of a copy beside its rows, each with a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from client_sdk._wire.models import columns_of, pattern_name
from client_sdk._wire.values import Column, from_micros, utc
from client_sdk._wire.zones import zone_content
from client_sdk.copies._file.checksums import Sums
from client_sdk.copies._file.clock import Offset
from psoup.v1 import psoup_pb2 as pb


@dataclass(frozen=True, slots=True)
class Declaration:
    """The arguments of `keep`, and the handle once there is one.

    `parameters` are psoup.v1.Value messages in hexadecimal. `sql` is empty if only the handle is
    known. `key` is the client key that the query is registered with. `stream` is empty until it is
    learnt. `changes` is "all", "without left", "with own" or "every point" if changes are kept,
    else empty. With
    `edits` the copy shows what its own file has queued. A `pinned` copy is never evicted.
    """

    copy_id: int
    name: str
    sql: str
    parameters: dict[str, str]
    lease: float | None
    window: str
    priority: int
    base_rows: bool
    key: str
    handle: bytes = b""
    stream: str = ""
    changes: str = ""
    edits: bool = False
    pinned: bool = False

    def asks_the_same(self, declaration: Declaration) -> bool:
        """Return whether both have one answer. A handle that is not given does not matter, nor
        whether changes are kept or own edits shown.
        """
        # Every field that does not affect the answer is made equal before the comparison.
        same = replace(declaration, copy_id=self.copy_id, key=self.key, priority=self.priority)
        same = replace(same, lease=self.lease, name=self.name, stream=self.stream)
        same = replace(same, changes=self.changes, edits=self.edits, pinned=self.pinned)
        # With a text, the handle follows from it. Without one, the handle is the query.
        return self == (replace(same, handle=self.handle) if self.sql else same)

    def to_content(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Declaration:
        return cls(**{**content, "handle": bytes.fromhex(content["handle"])})


_KEY = Column("_key", "BIGINT")


@dataclass(frozen=True, slots=True)
class Shape:
    """The description that `begin` gives of the rows of a whole answer.

    `keyed` rows have a digest of their stream key, or of those of all rows they combine, which is
    stored as one more column after the others. `combined` rows are made of several rows, so that
    their ids are no identities. `zones` has the rules of the time zones that its windows move by,
    as JSON; it is empty without any.
    """

    columns: tuple[Column, ...]
    pattern: str
    by_checksum: bool
    slides: bool
    keyed: bool = False
    combined: bool = False
    zones: str = ""

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns of a table of such rows."""
        return (*self.columns, _KEY) if self.keyed else self.columns

    @classmethod
    def from_wire(cls, begin: pb.SyncBegin) -> Shape:
        return cls(
            columns_of(begin.columns),
            pattern_name(begin.pattern),
            begin.digest_of == pb.DIGEST_OF_CHECKSUMS,
            begin.slides,
            begin.keyed,
            begin.combined,
            json.dumps([zone_content(rules) for rules in begin.zones]) if begin.zones else "",
        )

    def to_content(self) -> dict[str, Any]:
        columns = [[column.name, column.type] for column in self.columns]
        return {**asdict(self), "columns": columns}

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Shape:
        columns = tuple(Column(*pair) for pair in content["columns"])
        return cls(**{**content, "columns": columns})


@dataclass(frozen=True, slots=True)
class Version:
    """An answer that the file holds in a table, as its `end` described it. Instants are
    microseconds.

    `reason` says why the answer was sent whole, if it was, or a version since the visible one was.
    `offset` is the offset of the store's clock; None if the store did not send its clock. Own rows
    up to the id `covered` are in the answer, if the store has taken them; None if none is known to
    be.
    """

    table: str
    shape: Shape
    token: bytes
    position: bytes
    now: int | None
    row_count: int
    digest: bytes
    good_until: int | None
    lease_until: int | None
    notes: tuple[str, ...]
    base_rows: bool
    reason: str = ""
    offset: Offset | None = None
    covered: int | None = None

    @classmethod
    def from_wire(
        cls,
        end: pb.SyncEnd,
        table: str,
        shape: Shape,
        before: Version | None,
        base_rows: bool,
        reason: str,
        offset: Offset | None,
    ) -> Version:
        """Return the version of an `end`. `before` is the version that was changed, None for a
        whole answer.
        """
        return cls(
            table=table,
            shape=shape,
            token=end.token,
            position=end.position,
            now=end_micros(end, "now"),
            row_count=end.row_count,
            digest=end.digest,
            good_until=end_micros(end, "good_until"),
            lease_until=end_micros(end, "lease_until"),
            # Changes that come without notes leave the notes as they were.
            notes=tuple(end.notes) if before is None or end.notes else before.notes,
            base_rows=base_rows,
            reason=reason,
            offset=offset,
        )

    def to_content(self) -> dict[str, Any]:
        return {**asdict(self), "shape": self.shape.to_content()}

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Version:
        fields = dict(content)
        for name in ("token", "position", "digest"):
            fields[name] = bytes.fromhex(fields[name])
        fields["shape"] = Shape.from_content(fields["shape"])
        fields["notes"] = tuple(fields["notes"])
        offset = fields.get("offset")
        fields["offset"] = offset and Offset(**offset)
        return cls(**fields)

    @property
    def sums(self) -> Sums:
        return Sums(self.row_count, self.digest)

    @property
    def state(self) -> CopyState:
        return CopyState(
            columns=self.shape.columns,
            position=self.position,
            now=_moment(self.now),
            slides=self.shape.slides,
            pattern=self.shape.pattern,
            good_until=_moment(self.good_until),
            lease_until=_moment(self.lease_until),
            notes=self.notes,
            row_count=self.row_count,
            base_rows=self.base_rows,
        )


@dataclass(frozen=True, slots=True)
class Reported:
    """The answer up to which changes have been reported. Its rows are in a table of their own.

    `now` is its NOW, and `sums` are the count of its rows and the digest of their checksums.
    `series` names the changes that lead to it.
    """

    shape: Shape
    now: int | None
    sums: Sums
    series: str

    def to_content(self) -> dict[str, Any]:
        return {**asdict(self), "shape": self.shape.to_content()}

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Reported:
        sums = content["sums"]
        return cls(
            Shape.from_content(content["shape"]),
            content["now"],
            Sums(sums["count"], bytes.fromhex(sums["digest"])),
            content["series"],
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """A transfer that is not complete. `shape` is that of a whole answer; None if the copy is
    changed.

    `repair` identifies what was to be repaired, so that the same is requested again. `begun` is
    False if the token only holds a position, and no row was received. `table` has the received
    rows; it is empty before there are any.
    """

    resume: bytes
    table: str
    begun: bool
    shape: Shape | None
    reason: str
    repair: str

    def to_content(self) -> dict[str, Any]:
        shape = None if self.shape is None else self.shape.to_content()
        return {**asdict(self), "shape": shape}

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Stage:
        shape = content["shape"] and Shape.from_content(content["shape"])
        resume = bytes.fromhex(content["resume"])
        return cls(**{**content, "shape": shape, "resume": resume})


def end_micros(end: pb.SyncEnd, field: str) -> int | None:
    """Return an instant of an `end` in microseconds; None if it is absent."""
    if not end.HasField(field):
        return None
    stamp = getattr(end, field)
    return int(stamp.seconds) * 1_000_000 + int(stamp.nanos) // 1000


def _moment(micros: int | None) -> Any:
    """Return a datetime; None also if a datetime can't hold the instant."""
    try:
        return None if micros is None else from_micros(micros)
    except OverflowError:
        return None


@dataclass(frozen=True, slots=True)
class CopyState:
    """The state of a copy: the answer at `position` and `now`, and if it `slides` at every later
    instant.

    `now` is None if an event-time stream had no rows. Without new data the copy is what the store
    would answer before `good_until`; None means always. The registration may end at `lease_until`
    unless it is synced before. `row_count` includes rows that will enter the answer later.
    `clock_offset` is the store's clock minus this device's; it is None if it is unknown because the
    device was started, or its clock set, since the last sync.
    """

    columns: tuple[Column, ...]
    position: bytes
    now: datetime | None
    slides: bool
    pattern: str
    good_until: datetime | None
    lease_until: datetime | None
    notes: tuple[str, ...]
    row_count: int
    base_rows: bool
    clock_offset: timedelta | None = None

    def fresh(self, now: datetime | None = None) -> bool:
        """Return whether the copy is still right at `now`, given no new data.

        None is the store's NOW, by this machine's clock and its offset.
        """
        present = datetime.now().astimezone() + (self.clock_offset or timedelta(0))
        moment = present if now is None else now
        return self.good_until is None or utc(moment) < self.good_until


def seal(content: Mapping[str, Any]) -> str:
    """Return a record as JSON after its checksum, which reveals a flipped bit. Bytes are in
    hexadecimal.
    """
    # Without spaces, since the catalog searches these texts for a name as it is written here.
    text = json.dumps(content, separators=(",", ":"), sort_keys=True, default=bytes.hex)
    return f"{_sum(text)} {text}"


def unseal(sealed: Any) -> dict[str, Any] | None:
    """Return the content of a record; None if its checksum is wrong."""
    if not isinstance(sealed, str):
        return None
    checksum, _, text = sealed.partition(" ")
    if checksum != _sum(text):
        return None
    content: dict[str, Any] = json.loads(text)
    return content


def _sum(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
