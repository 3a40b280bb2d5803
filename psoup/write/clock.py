"""The guard of the log's stamps: it decides whether this server's clock may stamp a commit.

Stamps never fall, so one commit of a clock that is ahead moves NOW for all clients. A server
therefore compares its clock with those of other machines that it reads in the log, and with its own
machine's time since boot. It appends nothing while it is ahead of either by more than a limit, and
corrects NOW of its answers by that much. A clock that is behind does no harm.

Commits from before a server's start say nothing about the present. If its clock would move the
stamps further than it can account for, and servers of other machines are present, it asks them for
their clocks first. It appends nothing until one has answered.

Not thread-safe: everything here runs on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from datastem.instants import MINUTE, format_instant
from psoup.errors import BadRequest
from psoup.store import ClockStatement, Confirm, Entry, Jump
from psoup.store.state.jumps import MIN_JUMP
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft
from psoup.write.timepiece import Timepiece

# A machine without a commit for this long is not counted. Each ticks three times as often.
MACHINE_TTL = 15 * MINUTE
# A machine whose clock is known this recently need not be asked for it.
_FRESH_CLOCK_AGE = MINUTE


@dataclass(frozen=True, slots=True)
class RemoteClock:
    """Another machine's clock: `offset` is its time less this machine's time since boot, `at` when
    it was read, by this machine's time since boot.

    A commit may be read late, which makes `offset` too small, never too great. So the greatest
    recent offset counts.
    """

    offset: int
    at: int


class ClockGuard:
    """Compares `timepiece` with the other machines' clocks; `limit` and `settle` are durations.

    A clock may be ahead by `limit` at most. A jump that this server announces counts as true after
    `settle` of later stamps; with 0 its clock is trusted. `sees_others` returns True if servers of
    other machines are present.
    """

    def __init__(
        self,
        timepiece: Timepiece,
        limit: int,
        settle: int,
        sees_others: Callable[[], bool] = lambda: False,
    ) -> None:
        self.timepiece = timepiece
        self.sees_others = sees_others
        self._limit = limit
        self._settle = settle
        self._offset_at_start = timepiece.wall() - timepiece.boot()
        self._remote_clocks: dict[str, RemoteClock] = {}
        self._is_comparing = False
        # Whether another machine waits for this one's clock.
        self.is_asked = False
        # The last stamp, and the time since boot when this server read it.
        self._last_seen = 0, timepiece.boot()
        self._last_commit_at = timepiece.boot()

    def begin(self, last: int) -> None:
        """Begin to compare clocks. The caller passes commits to `hear` as they are made from now
        on; earlier ones may be of any age."""
        self.see(last)
        self._is_comparing = True

    def hear(self, entries: Sequence[Entry]) -> None:
        """Note the clocks in a commit of this or another server that was applied."""
        if not entries:
            return
        last = entries[-1]
        self.see(last.stamp)
        # All entries of a commit have one server and one clock.
        if last.server == self.timepiece.name:
            # A commit states its server's clock, so it answers the machine that asks.
            self._last_commit_at, self.is_asked = self.timepiece.boot(), False
        elif last.server and last.clock is not None:
            self._hear_clock(last.server, last.clock)
        for event in (entry.event for entry in entries):
            if isinstance(event, ClockStatement) and event.server == self.timepiece.name:
                self.is_asked = False
            elif isinstance(event, ClockStatement):
                self._hear_clock(event.server, event.clock)
                self.is_asked |= self._is_comparing and event.asks

    def _hear_clock(self, server: str, clock: int) -> None:
        if not self._is_comparing:
            return
        boot = self.timepiece.boot()
        previous, offset = self._remote_clocks.get(server), clock - boot
        if previous is not None and boot - previous.at <= MACHINE_TTL:
            offset = max(offset, previous.offset)
        self._remote_clocks[server] = RemoteClock(offset, boot)

    def must_ask(self, last: int) -> bool:
        """Return True if the next stamp would be further past the last one than this server can
        account for, and it has not heard of another machine just now."""
        if not last or not self._settle:
            return False
        stamp = max(self.timepiece.wall(), last)
        if self._unaccounted(last, stamp) <= min(self._limit, MIN_JUMP):
            return False
        boot = self.timepiece.boot()
        silent = all(boot - clock.at > _FRESH_CLOCK_AGE for clock in self._remote_clocks.values())
        return silent and not self.timepiece.synchronised()

    def statement(self, asks: bool) -> ClockStatement:
        """Return the event that states this machine's clock; it requests the others' if `asks`."""
        return ClockStatement(self.timepiece.name, self.timepiece.wall(), asks)

    def see(self, stamp: int) -> None:
        """Note the last stamp of the log: this server can account for the time from now on."""
        # A repeated stamp keeps its first time, from which the server accounts for its run.
        if stamp != self._last_seen[0]:
            self._last_seen = stamp, self.timepiece.boot()

    @property
    def silence(self) -> int:
        """The time for which no server of this machine has appended anything."""
        return self.timepiece.boot() - self._last_commit_at

    def others(self) -> dict[str, int]:
        """Return by how much this clock is ahead of each machine with a recent clock, by name."""
        boot = self.timepiece.boot()
        clocks = self._remote_clocks.items()
        self._remote_clocks = {
            name: clock for name, clock in clocks if boot - clock.at <= MACHINE_TTL
        }
        # All offsets are from this machine's time since boot, so they can be compared.
        own_offset = self.timepiece.wall() - boot
        return {name: own_offset - clock.offset for name, clock in self._remote_clocks.items()}

    def now(self) -> int:
        """Return the time: this server's clock, less what it is known to be ahead."""
        wall = self.timepiece.wall()
        return wall - max(self._stepped(wall), self._ahead(), 0)

    def problem(self) -> str:
        """Return why this server may not append; empty if it may."""
        if stepped := self._stepped(self.timepiece.wall()):
            return (
                f"this server's clock was set {_minutes(stepped)} forward while it ran; "
                "set it right, or restart the server if it is right now"
            )
        if ahead := self._ahead():
            return (
                f"this server's clock ({format_instant(self.timepiece.wall())}) is "
                f"{_minutes(ahead)} ahead of most other servers'; set it right"
            )
        return ""

    def _stepped(self, wall: int) -> int:
        """Return by how much the clock, which says `wall`, was set forward since the start; 0
        within the limit."""
        stepped = wall - self.timepiece.boot() - self._offset_at_start
        return stepped if stepped > self._limit else 0

    def _ahead(self) -> int:
        """Return by how much the clock is at least ahead of most others; 0 within the limit."""
        if not self._remote_clocks:
            return 0
        # The lower median: one machine with a wrong clock must not stop the others.
        ahead = sorted(self.others().values())
        least = ahead[(len(ahead) - 1) // 2] if ahead else 0
        return least if least > self._limit else 0

    def jump(self, last: int, stamp: int) -> Jump | None:
        """Return the event that must precede those stamped `stamp` if the last stamp was `last`.

        Return None if none is needed: this machine's time service vouches for its clock, or the
        server can account for the time.
        """
        if not last or self._unaccounted(last, stamp) <= MIN_JUMP or self.timepiece.synchronised():
            return None
        return Jump(last, stamp, self.timepiece.name, self._limit, self._settle)

    def _unaccounted(self, last: int, stamp: int) -> int:
        """Return by how much `stamp` is past `last` and the time that this server ran since."""
        seen_stamp, at = self._last_seen
        return stamp - last - (self.timepiece.boot() - at if seen_stamp == last else 0)


@dataclass(frozen=True, slots=True)
class ConfirmJumps:
    """Proposal of an operator to confirm jumps of the store's time; confirmed ones stay so."""

    numbers: tuple[int, ...]
    tenant: str = ""
    owner: str = ""
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> None:
        jumps = draft.state.jumps
        for number in self.numbers:
            if not 1 <= number <= jumps.count:
                raise BadRequest(
                    f"there is no jump {number}; the store's time has jumped {jumps.count} times",
                    field="confirm",
                    got=str(number),
                    hint="look at `psoup clock`",
                )
        waiting = {record.number for record in jumps.open}
        for number in sorted(waiting.intersection(self.numbers)):
            draft.append(self.tenant, self.owner, Confirm(number))


def _minutes(duration: int) -> str:
    return f"{duration / MINUTE:,.0f} minutes"
