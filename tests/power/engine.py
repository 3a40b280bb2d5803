"""An engine that checkpoints, drops commits, trims and deletes all the time; as a process."""

from __future__ import annotations

import sys

from psoup.engine import process
from psoup.engine.settings import EngineSettings

EAGER = EngineSettings(
    grace=5.0,
    housekeeping=0.05,
    trim_commits=4,
    checkpoint_commits=4,
    commit_grace=0.0,
    merge_files=3,
    compact_files=3,
)

if __name__ == "__main__":
    vars(process)["EngineSettings"] = lambda: EAGER
    sys.exit(process.main())
