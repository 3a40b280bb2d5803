"""psoup bench: how fast a store is on your machine, with your queries."""

from __future__ import annotations

from psoup.cli.bench.command import bench

__all__ = ["bench"]
