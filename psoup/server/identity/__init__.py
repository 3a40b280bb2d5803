"""Who calls: from what a call shows to a Principal."""

from __future__ import annotations

from psoup.server.identity.authenticator import PRINCIPAL, AcceptAnyone, Authenticator

__all__ = ["PRINCIPAL", "AcceptAnyone", "Authenticator"]
