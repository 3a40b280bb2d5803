"""`python -m psoup.web --store PATH --port N --web HOST:PORT`: what `psoup server` runs."""

from __future__ import annotations

import os
import sys

if sys.platform == "linux":
    # As in psoup.server.__main__: Arrow looks at this once, when it is loaded.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")

from psoup.web.main import main  # noqa: E402

sys.exit(main())
