"""Tests of whole stores take their time."""

from __future__ import annotations

from pathlib import Path

import pytest

PATIENCE = 600
HERE = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An engine takes ten seconds to start, and minutes on a machine that is busy with others."""
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE))
