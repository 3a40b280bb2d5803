"""Who calls: from what a call shows to a Principal."""

from __future__ import annotations

from psoup.server.identity.authenticator import (
    PRINCIPAL,
    AcceptAnyone,
    Authenticator,
    identify,
    present_actor,
)

__all__ = ["PRINCIPAL", "AcceptAnyone", "Authenticator", "identify", "present_actor"]
