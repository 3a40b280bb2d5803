"""The version of the software, as the installed package names it."""

from __future__ import annotations

import importlib.metadata


def software_version() -> str:
    """Return the version of the installed package, or "unknown" in a bare checkout."""
    try:
        return importlib.metadata.version("psoup")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
