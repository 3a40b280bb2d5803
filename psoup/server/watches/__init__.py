"""The items of all Watch calls between their rounds, and which of them an event wakes."""

from __future__ import annotations

from psoup.server.watches.index import Watches
from psoup.server.watches.sleeper import Sleeper

__all__ = ["Sleeper", "Watches"]
