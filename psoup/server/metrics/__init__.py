"""What a server counts and measures about itself, for monitoring."""

from __future__ import annotations

from collections.abc import Sequence

from psoup.store import Entry

__all__ = ["ServerMetrics"]


class ServerMetrics:
    """Takes what happens in a server. This one keeps nothing: the server has no port for metrics.

    Each method is called on the event loop, and takes microseconds.
    """

    def end_call(
        self,
        method: str,
        door: str,
        code: str,
        reason: str,
        seconds: float,
        queued: float,
        tenant: str,
    ) -> None:
        """Note that a call has ended: with a status code and the reason of a refusal, after so many
        seconds, of which it waited `queued` for its turn and for memory. `tenant` is
        empty if the caller is not authenticated."""

    def append(self, seconds: float, entries: Sequence[Entry]) -> None:
        """Note a commit of the log, and the rows in it."""

    def lose_race(self) -> None:
        """Note a commit that another server was faster with."""

    def compute(self, tenant: str, rows: int, pairs: int) -> None:
        """Note rows that an answer evaluated on the spot, and pairs that its joins looked at."""

    def begin_sync(self, mode: str, reason: str) -> None:
        """Note an item of a sync: how it is answered, and why if the whole answer is sent."""

    def send_copy(self, mode: str, reason: str, nbytes: int) -> None:
        """Note bytes of rows that were sent to a copy."""
