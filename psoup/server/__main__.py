"""`python -m psoup.server --store PATH --port N`."""

from __future__ import annotations

import sys

from psoup.server.main import main

sys.exit(main())
