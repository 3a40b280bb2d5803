"""The guard of the log's stamps: it says whether this server's clock may get into the log.

Stamps never fall, so one commit of a clock that is ahead moves everybody's NOW. A server therefore
compares its clock with those of the machines it hears of in the log while it runs, and with the
time its own machine has been up since it started, and appends nothing while it is ahead of either
by more than a limit. Its answers go by the time it should be then. A clock that is behind does no
harm.

Commits from before its start tell a server nothing about now. If its clock would move the stamps
further than it can account for, and servers of other machines are present, it asks them for their
clocks first, and appends nothing until one has answered.

Everything here happens on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from datastem.instants import MINUTE, format_instant
from psoup.errors import BadRequest
from psoup.store import ClockAsked, Confirm, Entry, Jump
from psoup.store.state.jumps import LEAST
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft
from psoup.write.timepiece import Timepiece

# A machine that was not heard of for so long is not counted. Each ticks three times as often.
LIVE = 15 * MINUTE
# A machine that was heard of within this need not be asked for its clock.
_FRESH = MINUTE


@dataclass(frozen=True, slots=True)
class Heard:
    """Another machine's clock: by how much it is past this machine's time since boot.

    A commit may be read late, which makes `offset` too small, never too great: the greatest of
    those heard lately counts.
    """

    offset: int
    at: int


class ClockGuard:
    """Compares `timepiece` with the other machines' clocks; `limit` and `settle` are durations.

    A clock may be ahead by `limit` at most. A jump that this server announces is taken for true
    after `settle` of later stamps; with 0 its clock is trusted. `sees_others` tells whether servers
    of other machines are present.
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
        self._begun = timepiece.wall() - timepiece.boot()
        self._others: dict[str, Heard] = {}
        self._live = False
        # Whether another machine waits for this one's clock.
        self.is_asked = False
        self._seen = 0, timepiece.boot()
        self._said = timepiece.boot()

    def begin(self, last: int) -> None:
        """Begins to compare clocks. Commits are heard as they are made from here on; those before
        may be of any age."""
        self.see(last)
        self._live = True

    def hear(self, entries: Sequence[Entry]) -> None:
        """A commit of this or another server was applied."""
        if not entries:
            return
        last = entries[-1]
        self.see(last.stamp)
        if last.server == self.timepiece.name:
            self._said, self.is_asked = self.timepiece.boot(), False
        elif last.server and last.clock is not None:
            self._hear_clock(last.server, last.clock)
        for event in (entry.event for entry in entries):
            if isinstance(event, ClockAsked) and event.server == self.timepiece.name:
                self.is_asked = False
            elif isinstance(event, ClockAsked):
                self._hear_clock(event.server, event.clock)
                self.is_asked |= self._live and event.asks

    def _hear_clock(self, server: str, clock: int) -> None:
        if not self._live:
            return
        boot = self.timepiece.boot()
        heard, previous = Heard(clock - boot, boot), self._others.get(server)
        if previous is not None and boot - previous.at <= LIVE and previous.offset > heard.offset:
            heard = Heard(previous.offset, boot)
        self._others[server] = heard

    def must_ask(self, last: int) -> bool:
        """Return True if the next stamp would be further past the last one than this server can
        account for, and it has not heard of another machine just now."""
        if not last or not self._settle:
            return False
        stamp = max(self.timepiece.wall(), last)
        if self._unaccounted(last, stamp) <= min(self._limit, LEAST):
            return False
        boot = self.timepiece.boot()
        silent = all(boot - heard.at > _FRESH for heard in self._others.values())
        return silent and not self.timepiece.synchronised()

    def statement(self, asks: bool) -> ClockAsked:
        """Return what tells this machine's clock, and asks for the others' if it `asks`."""
        return ClockAsked(self.timepiece.name, self.timepiece.wall(), asks)

    def see(self, stamp: int) -> None:
        """The last stamp of the log: time from here on is accounted for."""
        if stamp != self._seen[0]:
            self._seen = stamp, self.timepiece.boot()

    @property
    def silence(self) -> int:
        """The time for which no server of this machine has appended anything."""
        return self.timepiece.boot() - self._said

    def others(self) -> dict[str, int]:
        """The other machines heard of lately, and by how much this clock is ahead of theirs."""
        boot = self.timepiece.boot()
        self._others = {
            name: heard for name, heard in self._others.items() if boot - heard.at <= LIVE
        }
        own = self.timepiece.wall() - boot
        return {name: own - heard.offset for name, heard in self._others.items()}

    def now(self) -> int:
        """The time: this server's clock, less what it is known to be ahead."""
        return self.timepiece.wall() - max(self._stepped(), self._ahead(), 0)

    def problem(self) -> str:
        """Why this server may not append; empty where it may."""
        if stepped := self._stepped():
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

    def _stepped(self) -> int:
        """The time by which the clock was set forward since this server began; 0 within limits."""
        stepped = self.timepiece.wall() - self.timepiece.boot() - self._begun
        return stepped if stepped > self._limit else 0

    def _ahead(self) -> int:
        """The least by which the clock is ahead of most other machines'; 0 within the limit."""
        ahead = sorted(self.others().values())
        least = ahead[(len(ahead) - 1) // 2] if ahead else 0
        return least if least > self._limit else 0

    def jump(self, last: int, stamp: int) -> Jump | None:
        """The event that must precede others stamped `stamp` where the last stamp was `last`.

        None is needed where this machine's time service vouches for its clock.
        """
        if not last or self._unaccounted(last, stamp) <= LEAST or self.timepiece.synchronised():
            return None
        return Jump(last, stamp, self.timepiece.name, self._limit, self._settle)

    def _unaccounted(self, last: int, stamp: int) -> int:
        """Return by how much `stamp` is past `last` and the time that this server ran since."""
        seen, at = self._seen
        return stamp - last - (self.timepiece.boot() - at if seen == last else 0)


@dataclass(frozen=True, slots=True)
class ConfirmJumps:
    """An operator says that jumps of the store's time are true; confirmed ones stay as they are."""

    numbers: tuple[int, ...]
    tenant: str = ""
    owner: str = ""
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> None:
        jumps = draft.state.jumps
        for number in self.numbers:
            if not 1 <= number <= jumps.made:
                raise BadRequest(
                    f"there is no jump {number}; the store's time has jumped {jumps.made} times",
                    field="confirm",
                    got=str(number),
                    hint="look at `psoup clock`",
                )
        waiting = {record.number for record in jumps.open}
        for number in sorted(waiting.intersection(self.numbers)):
            draft.append(self.tenant, self.owner, Confirm(number))


def _minutes(duration: int) -> str:
    return f"{duration / MINUTE:,.0f} minutes"
