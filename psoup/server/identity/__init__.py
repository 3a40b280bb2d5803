"""Who calls: from what a call shows to a Principal."""

from __future__ import annotations

from psoup.server.identity.authenticator import (
    PRINCIPAL,
    AcceptAnyone,
    Authenticator,
    identify,
    present_actor,
)
from psoup.server.identity.callers import authenticator
from psoup.server.identity.endings import Endings
from psoup.server.identity.settings import IdentitySettings

__all__ = [
    "PRINCIPAL",
    "AcceptAnyone",
    "Authenticator",
    "Endings",
    "IdentitySettings",
    "authenticator",
    "identify",
    "present_actor",
]
