from __future__ import annotations

from psoup.cli import main

main()
