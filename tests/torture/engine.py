"""An engine that checkpoints, drops commits and trims within seconds; as a process."""

from __future__ import annotations

import sys

from psoup.engine import process
from psoup.engine.settings import EngineSettings

EAGER = EngineSettings(housekeeping=1.0, trim_commits=8, checkpoint_commits=8, commit_grace=2.0)

if __name__ == "__main__":
    vars(process)["EngineSettings"] = lambda: EAGER
    sys.exit(process.main())
