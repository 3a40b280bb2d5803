"""Clock jumps: the part of the log's time that is not confirmed yet.

A stamp far past the last one may be true, after an outage, or come from one machine's wrong clock.
The server that writes it also writes a `Jump`. The jump stays *unconfirmed* until an operator,
another server's clock or enough later stamps confirm it. Until then answers use the stamps, but
rows that are old only because of the jump are not deleted.

This is a fold of the log: a jump's event holds everything that decides about it, so that readers
with different settings agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from datastem.instants import HOUR
from psoup.store.log.events import Jump

# A stamp further past the last one than this is a jump, if no elapsed time accounts for it.
MIN_JUMP = HOUR
# If there are more unconfirmed jumps than this, the two oldest are merged.
MAX_UNCONFIRMED_JUMPS = 256
# The last confirmed jumps are kept, for the operator's information.
MAX_CONFIRMED_JUMPS = 16

BY_OPERATOR = "operator"
BY_TIME = "time"


@dataclass(frozen=True, slots=True)
class JumpRecord:
    """A jump and its confirmation.

    `total` is the length of all jumps up to and including this one. `confirmed` is what confirmed
    it: `operator`, `time` or the name of a server; empty while it is unconfirmed.
    """

    number: int
    jump: Jump
    total: int
    confirmed: str = ""

    @property
    def length(self) -> int:
        return self.jump.to - self.jump.before


@dataclass(frozen=True, slots=True)
class Jumps:
    """The jumps of the log, in its order; `count` and `total` also count those no longer in
    `records`."""

    records: tuple[JumpRecord, ...] = ()
    count: int = 0
    total: int = 0

    @property
    def open(self) -> tuple[JumpRecord, ...]:
        return tuple(record for record in self.records if not record.confirmed)

    @property
    def unconfirmed(self) -> int:
        """The length of all unconfirmed jumps together."""
        return sum(record.length for record in self.records if not record.confirmed)

    def add(self, jump: Jump) -> Jumps:
        total = self.total + jump.to - jump.before
        record = JumpRecord(self.count + 1, jump, total)
        return Jumps(_bounded([*self.records, record]), record.number, total)

    def confirm(self, number: int) -> Jumps:
        """Return the jumps with one confirmed by the operator. Unknown and confirmed jumps do not
        change."""
        return self._with({number: BY_OPERATOR})

    def hear(self, stamp: int, server: str, clock: int | None) -> Jumps:
        """Return the jumps after a commit: its stamp, and the clock of its server if known, may
        confirm some.

        A server confirms only jumps that came after its own last one: two wrong clocks in a row
        don't confirm each other.
        """
        if all(record.confirmed for record in self.records):
            return self
        confirmations: dict[int, str] = {}
        is_own = not server or clock is None
        # From the newest back: from a server's own last jump on, its clock confirms nothing
        # earlier.
        for record in reversed(self.open):
            jump = record.jump
            is_own = is_own or jump.server == server
            if not is_own and clock is not None and stamp - clock <= jump.agree:
                confirmations[record.number] = server
            elif stamp - jump.to - (self.total - record.total) >= jump.settle:
                confirmations[record.number] = BY_TIME
        return self._with(confirmations) if confirmations else self

    def until(self, clock: int) -> Jumps:
        """Return the jumps without those to an instant past `clock`, which a repair has undone."""
        remaining = tuple(record for record in self.records if record.jump.to <= clock)
        dropped = sum(record.length for record in self.records if record.jump.to > clock)
        return Jumps(remaining, self.count, self.total - dropped)

    def _with(self, confirmed: dict[int, str]) -> Jumps:
        records = [
            record
            if record.confirmed or record.number not in confirmed
            else replace(record, confirmed=confirmed[record.number])
            for record in self.records
        ]
        return replace(self, records=_bounded(records))


def _bounded(records: list[JumpRecord]) -> tuple[JumpRecord, ...]:
    done = [record.number for record in records if record.confirmed]
    forgotten = set(done[:-MAX_CONFIRMED_JUMPS])
    remaining = [record for record in records if record.number not in forgotten]
    waiting = [record for record in remaining if not record.confirmed]
    if len(waiting) <= MAX_UNCONFIRMED_JUMPS:
        return tuple(remaining)
    first, second = waiting[:2]
    # The second takes over the length of the first, so that the unconfirmed time stays the same.
    longer = replace(second.jump, before=second.jump.before - first.length)
    return tuple(_merged(remaining, first, replace(second, jump=longer)))


def _merged(
    records: Iterable[JumpRecord], dropped: JumpRecord, longer: JumpRecord
) -> Iterable[JumpRecord]:
    for record in records:
        if record.number == longer.number:
            yield longer
        elif record.number != dropped.number:
            yield record
