"""Who is woken when something happened: the items of all Watch calls between their rounds."""

from __future__ import annotations

from psoup.server.watches.index import Watches
from psoup.server.watches.sleeper import Sleeper

__all__ = ["Sleeper", "Watches"]
