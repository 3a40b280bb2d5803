"""A sleeper: an item of a Watch between two of its rounds."""

from __future__ import annotations

from collections.abc import Callable

from psoup.answers.planning.concern import Concern


class Sleeper:
    """An item of a Watch, woken by what can change its answer.

    Without a `concern` it is woken by every commit: what concerns it is not known yet. `until` is
    the instant at which time alone may change its answer, or None. A sleeper that is `stale` needs
    another round before its concern is known.
    """

    __slots__ = ("_wake", "concern", "handle", "stale", "tenant", "until")

    def __init__(self, tenant: str, handle: bytes, wake: Callable[[], None]) -> None:
        self.tenant = tenant
        self.handle = handle
        self.concern: Concern | None = None
        self.until: int | None = None
        self.stale = False
        self._wake = wake

    def wake(self) -> None:
        """Notify its Watch that the answer may have changed; more than once is as good as once."""
        self._wake()
