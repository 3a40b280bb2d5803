"""Authenticators tell whose a call is, before anything else of it is looked at."""

from __future__ import annotations

from typing import Protocol

from psoup.access.principal import ANYONE, Principal
from psoup.server.status_codes import Context


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
