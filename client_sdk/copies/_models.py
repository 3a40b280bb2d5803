"""What copies say about themselves, and what a sync did to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from client_sdk._exceptions import PsoupError
from client_sdk._wire.values import Column, utc
from client_sdk.copies._queued import Sent

Status = Literal["changed", "unchanged", "incomplete", "refused"]


@dataclass(frozen=True, slots=True)
class CopyState:
    """A copy is the answer at `position` and `now`, and where it `slides` at every later instant.

    `now` is None where an event-time stream had no rows. Without new data the copy is what the
    store would answer before `good_until`; None: always. The registration may end if nobody syncs
    until `lease_until`. `row_count` counts rows that are yet to enter too.
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

    def fresh(self, now: datetime | None = None) -> bool:
        """Whether the copy is still right at `now` (None: by this machine's clock), as long as
        there is no new data."""
        moment = datetime.now().astimezone() if now is None else now
        return self.good_until is None or utc(moment) < self.good_until


@dataclass(frozen=True, slots=True)
class Change:
    """What a sync did to one copy.

    "incomplete": the byte budget, or a transfer of one position, left the rest for the next sync;
    the copy is as it was. "refused": `error` says why; the copy is as it was. `whole` is True
    where all rows were sent, and `reason` says why. `repaired` rows were found damaged.
    """

    status: Status
    whole: bool = False
    reason: str = ""
    rows: int = 0
    removed: int = 0
    repaired: int = 0
    error: PsoupError | None = None


@dataclass(frozen=True, slots=True)
class Synced(Mapping[str, Change]):
    """The changes by the names of the copies, and what was sent of the queue before.

    `received_bytes` are those of the messages of the sync, as they came over the line.
    """

    changes: dict[str, Change]
    sent: Sent = Sent()
    received_bytes: int = 0

    @property
    def complete(self) -> bool:
        """Every copy has come to its end."""
        return all(one.status in ("changed", "unchanged") for one in self.changes.values())

    @property
    def changed(self) -> list[str]:
        return [name for name, one in self.changes.items() if one.status == "changed"]

    def __getitem__(self, name: str) -> Change:
        return self.changes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)
