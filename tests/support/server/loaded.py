"""What a server loads; imported once by the process that servers are forked from."""

from __future__ import annotations

import gc
import os

# As psoup.server.__main__ does: Arrow looks at this once, when it is loaded.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")

import pyarrow as pa  # noqa: E402

import psoup.server.main  # noqa: E402, F401

# Arrow loads pandas, if it is installed, with the first array that is made of a list.
pa.array([0])
# Otherwise the first collection of each server would copy all of this.
gc.freeze()
