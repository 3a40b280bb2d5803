"""Authenticators tell whose a call is, before anything else of it is looked at."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from psoup.access.principal import ANYONE, Principal
from psoup.server.status_codes import Context

# The caller of the present call. It has no default: code that no call has reached may do nothing.
PRINCIPAL: ContextVar[Principal] = ContextVar("principal")
# A call whose caller was told before its message was read, and that caller.
_TOLD: ContextVar[tuple[object, Principal] | None] = ContextVar("told", default=None)


def present_actor() -> tuple[str, str] | None:
    """The tenant and owner of the present caller, for the log; None where no call is at hand, or
    nobody has shown who they are."""
    principal = PRINCIPAL.get(None)
    return None if principal is None or principal.anyone else (principal.tenant, principal.owner)


class Authenticator(Protocol):
    async def principal(self, context: Context) -> Principal:
        """The caller of a call. Raises Unauthenticated."""

    def check(self, caller: Principal) -> None:
        """Raises Unauthenticated where what a caller has shown is no longer worth anything."""

    def modes(self) -> tuple[str, ...]:
        """The ways to show who calls that are asked for at present; none where anyone may call."""


class AcceptAnyone:
    """Takes every caller for anyone: of a server that only the own machine reaches."""

    async def principal(self, context: Context) -> Principal:
        return ANYONE

    def check(self, caller: Principal) -> None:
        pass

    def modes(self) -> tuple[str, ...]:
        return ()


def caller_of(context: Context) -> Principal | None:
    """Return the caller of a call; None if it was refused before that was known."""
    told = _TOLD.get()
    return told[1] if told is not None and told[0] is context else None


async def identify(authenticator: Authenticator, context: Context) -> Principal:
    """Makes the caller of a call its PRINCIPAL, and gives it. The authenticator is asked once for
    each call. Raises Unauthenticated."""
    told = _TOLD.get()
    if told is None or told[0] is not context:
        told = context, await authenticator.principal(context)
        _TOLD.set(told)
    PRINCIPAL.set(told[1])
    return told[1]
