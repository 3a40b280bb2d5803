"""Authenticators tell whose a call is, before anything else of it is looked at."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from psoup.access.principal import ANYONE, Principal
from psoup.server.status_codes import Context

# The caller of the present call. It has no default: code that no call has reached may do nothing.
PRINCIPAL: ContextVar[Principal] = ContextVar("principal")


def present_actor() -> tuple[str, str] | None:
    """The tenant and owner of the present caller, for the log; None where no call is at hand, or
    nobody has shown who they are."""
    principal = PRINCIPAL.get(None)
    return None if principal is None or principal.anyone else (principal.tenant, principal.owner)


class Authenticator(Protocol):
    def principal(self, context: Context) -> Principal:
        """The caller of a call. Raises Unauthenticated."""


# The call that was looked at last in this context, and its caller.
_IDENTIFIED: ContextVar[tuple[Context, Principal] | None] = ContextVar("identified", default=None)


def identify(authenticator: Authenticator, context: Context) -> Principal:
    """The caller of a call, found out once for each call. Raises Unauthenticated."""
    known = _IDENTIFIED.get()
    if known is not None and known[0] is context:
        return known[1]
    principal = authenticator.principal(context)
    _IDENTIFIED.set((context, principal))
    return principal


class AcceptAnyone:
    """Takes every caller for anyone: of a server that only the own machine reaches."""

    def principal(self, context: Context) -> Principal:
        return ANYONE
