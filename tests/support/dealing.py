"""The way tests are dealt to several processes: by file, but all that shares a fixture together.

The one Spark session of a run is made in the process whose test asks for it first, and so is the
one running store. Tests that ask for either carry the mark `xdist_group`, which `--dist loadgroup`
appends to their id: `tests/engine/test_step.py::test_x@spark`.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

SHARED_FIXTURES = ("spark", "running")


def group_tests(items: list[pytest.Item]) -> None:
    """Mark the tests that ask for a shared fixture."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        for fixture in SHARED_FIXTURES:
            if fixture in names:
                item.add_marker(pytest.mark.xdist_group(fixture))
                break


class Dealing(LoadScopeScheduling):  # type: ignore[misc]
    """Deals groups and files; those with most tests first."""

    def _split_scope(self, nodeid: str) -> str:
        test_id, _, group = nodeid.rpartition("@")
        # An at sign inside brackets is part of a parameter.
        is_grouped = bool(test_id) and "]" not in group
        return group if is_grouped else nodeid.partition("::")[0]
