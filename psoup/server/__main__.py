"""`python -m psoup.server --store PATH --port N`."""

from __future__ import annotations

import os
import sys

if sys.platform == "linux":
    # Arrow's usual allocator keeps what each thread has freed for that thread, and answers have
    # many. Arrow looks at this once, when it is loaded.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")

from psoup.server.main import main  # noqa: E402

sys.exit(main())
