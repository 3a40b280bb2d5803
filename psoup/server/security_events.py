"""Security events: refused credentials and calls, in the server's log and in the audit.

An attack may be millions of refusals from as many addresses, so all that is kept and written is
bounded. Refusals are counted in windows of a minute, by address, credential and reason. The first
of each is a line of the log at once; how many more there were is a line at the end of the window.
A denied attempt to administer becomes an event of the store's log, by credential and reason, at
the end of the window.

For the event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from psoup.access.principal import Principal
from psoup.errors import (
    AdministrationDenied,
    PermissionDenied,
    ServerError,
    Unauthenticated,
)
from psoup.server.identity.callers import shown_credential
from psoup.server.status_codes import Context
from psoup.store import StoreError
from psoup.texts import escaped
from psoup.write.denials import Denial, NoteDenials

log = logging.getLogger("psoup.security")

_WINDOW_SECONDS = 60.0
# Different refusals, and different denials, that are counted by themselves in a window.
_MAX_REFUSALS = 1000
_MAX_DENIALS = 100
# Lines at once, and as many again at the end of a window.
_MAX_LINES = 100
_MAX_REASON = 200
# What is denied beyond _MAX_DENIALS is counted together, for operators.
_OTHERS = Denial("", "", "others", "denials of further callers, counted together")


@dataclass(frozen=True, slots=True)
class RefusedCalls:
    """Calls that were refused alike: `peer` is an address without its port."""

    peer: str
    credential: str
    reason: str


class SecurityEvents:
    """The refusals of the present window. `submit` appends to the log of the store."""

    def __init__(self, submit: Callable[[NoteDenials], Awaitable[object]]) -> None:
        self._submit = submit
        self._refusals: Counter[RefusedCalls] = Counter()
        self._others = 0
        self._denials: Counter[Denial] = Counter()

    def note(
        self, context: Context, principal: Principal | None, method: str, error: Exception
    ) -> None:
        """Count a call that ends with an error, if that is a refusal of its credential or of its
        permission. `principal` is None if the caller was not identified; `method` may be the path
        of the RPC, or its name alone."""
        if not isinstance(error, Unauthenticated | PermissionDenied):
            return
        credential = shown_credential(context) if principal is None else principal.credential
        reason = escaped(str(error))[:_MAX_REASON]
        peer = escaped(context.peer())
        # Counted without the port, which differs for each connection of an attacker.
        self._count(
            RefusedCalls(peer.rpartition(":")[0], escaped(credential), reason), peer, method
        )
        if principal is not None and isinstance(error, AdministrationDenied):
            named = f"{principal.credential}{_door(peer)}"
            denial = Denial(principal.tenant, principal.owner, named, reason)
            is_counted = denial in self._denials or len(self._denials) < _MAX_DENIALS
            self._denials[denial if is_counted else _OTHERS] += 1

    def _count(self, refusal: RefusedCalls, peer: str, method: str) -> None:
        if refusal not in self._refusals and len(self._refusals) >= _MAX_REFUSALS:
            self._others += 1
            return
        self._refusals[refusal] += 1
        if self._refusals[refusal] == 1 and len(self._refusals) <= _MAX_LINES:
            call, named = method.rpartition("/")[2], _named(refusal, peer)
            log.warning("refused %s from %s: %s", call, named, refusal.reason)

    async def flush(self) -> None:
        """End the window: write its counts to the server's log, and its denials to the store's."""
        # Swapped before anything is awaited, so that refusals from here on count in the next
        # window.
        refusals, uncounted = self._refusals, self._others
        self._refusals, self._others = Counter(), 0
        lines = 0
        for number, (refusal, count) in enumerate(refusals.items()):
            # The first refusals of the window had a line at once, in the order of the counter.
            more = count - (number < _MAX_LINES)
            if more and lines < _MAX_LINES:
                lines += 1
                named = _named(refusal, refusal.peer)
                log.warning("refused %d more calls from %s: %s", more, named, refusal.reason)
            elif more:
                uncounted += more
        if uncounted:
            log.warning("refused %d more calls from others", uncounted)
        await self._flush_denials()

    async def _flush_denials(self) -> None:
        denials, self._denials = self._denials, Counter()
        if not denials:
            return
        try:
            await self._submit(NoteDenials(tuple(denials.items())))
        except (ServerError, StoreError) as error:
            log.warning("denials wait to be noted in the audit: %s", error)
            for denial, count in denials.items():
                is_counted = denial in self._denials or len(self._denials) < _MAX_DENIALS
                self._denials[denial if is_counted else _OTHERS] += count

    async def run(self) -> None:
        """End a window every minute, until cancelled."""
        while True:
            await asyncio.sleep(_WINDOW_SECONDS)
            await self.flush()


def _named(refusal: RefusedCalls, peer: str) -> str:
    return f"{peer} with {refusal.credential or 'no credential'}"


def _door(peer: str) -> str:
    """Return by which door a call came, if that was not gRPC."""
    return " by http" if peer.startswith("http:") else ""
