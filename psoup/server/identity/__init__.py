"""Who calls: from what a call shows to a Principal."""

from __future__ import annotations

from psoup.server.identity.authenticator import AcceptAnyone, Authenticator
from psoup.server.identity.callers import authenticator
from psoup.server.identity.endings import Endings
from psoup.server.identity.settings import IdentitySettings

__all__ = ["AcceptAnyone", "Authenticator", "Endings", "IdentitySettings", "authenticator"]
