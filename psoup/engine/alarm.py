"""How the driver wakes its own source: "move the tick to n, not before this instant".

Spark asks the source for new offsets in a process of its own, so the word passes through a small
file in the query's scratch folder. Back-fill and housekeeping are due at a tick, whether or not
the log has grown.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path


class Alarm:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = 0
        self._tick = 0
        self._at = 0.0

    def set(self, tick: int, delay: float) -> None:
        """The tick becomes `tick` in `delay` seconds, unless this is called again before."""
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps({"tick": tick, "at": time.time() + delay}))
        os.replace(draft, self._path)

    def tick(self, current: int) -> int:
        """The tick now, given the one that was served last."""
        try:
            changed = self._path.stat().st_mtime_ns
        except FileNotFoundError:
            return current
        if changed != self._changed:
            alarm = json.loads(self._path.read_text())
            self._changed, self._tick, self._at = changed, alarm["tick"], alarm["at"]
        return max(current, self._tick) if time.time() >= self._at else current
