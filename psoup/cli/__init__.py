"""The `psoup` command: an ordinary client of a store, and the way to start one."""

from __future__ import annotations

from psoup.cli._main import cli, main

__all__ = ["cli", "main"]
