"""Authenticators: who makes a call, decided before anything else of it is read."""

from __future__ import annotations

from typing import Protocol

from psoup.access.principal import ANYONE, Principal
from psoup.server.status_codes import Context


class Authenticator(Protocol):
    async def principal(self, context: Context) -> Principal:
        """Return the caller of a call. Raise Unauthenticated."""

    def check(self, caller: Principal) -> None:
        """Raise Unauthenticated if the credential of a caller has ended."""

    def refresh(self) -> None:
        """Begin to read the files of credentials again."""

    def modes(self) -> tuple[str, ...]:
        """Return the ways to authenticate that are required at present; none if anyone may call."""


class AcceptAnyone:
    """An authenticator that takes every caller for anyone, for a server that only this machine
    reaches."""

    async def principal(self, context: Context) -> Principal:
        return ANYONE

    def check(self, caller: Principal) -> None:
        pass

    def refresh(self) -> None:
        pass

    def modes(self) -> tuple[str, ...]:
        return ()
