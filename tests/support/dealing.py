"""The way tests are dealt to several processes: by file, but all that shares a fixture together.

The one Spark session of a run is made in the process whose test asks for it first, and so is the
one running store. Tests that ask for either carry the mark `xdist_group`, and with
`--dist loadgroup` their id ends with it: `tests/engine/test_step.py::test_x@spark`. The process
that deals knows nothing of a test but its id.

These groups take longest, so they come first: the other process has files to take meanwhile, and
no process is left alone with Spark at the end.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# In the order in which their tests are dealt.
SHARED_FIXTURES = ("spark", "running")


def group_tests(items: list[pytest.Item], name_groups: bool) -> None:
    """Mark the tests that ask for a shared fixture, and put the tests in the order in which they
    are dealt: shared fixtures first, then the files with most tests. With `name_groups` the id of
    a test in a group ends with the group."""
    scopes = {item: _scope_of(item) for item in items}
    sizes = Counter(scopes.values())
    ranks = {scope: rank for rank, scope in enumerate(SHARED_FIXTURES)}
    # Stable: within a file or group tests keep their order.
    items.sort(
        key=lambda item: (
            ranks.get(scopes[item], len(ranks)),
            -sizes[scopes[item]],
            scopes[item],
        )
    )
    if name_groups:
        for item, scope in scopes.items():
            if item.get_closest_marker("xdist_group") is not None:
                _append_group(item, scope)


def _append_group(item: pytest.Item, group: str) -> None:
    """Append a group to the id of a test, as pytest-xdist does until 3.8: it sets `_nodeid`, which
    pytest reads no more since 9.2, so that each process would make a Spark session."""
    if hasattr(item, "_id"):
        item._id = type(item._id).parse(f"{item.nodeid}@{group}")


def _scope_of(item: pytest.Item) -> str:
    """Return the group of a test, which is marked with it, or its file."""
    mark = item.get_closest_marker("xdist_group")
    if mark is not None:
        return str(mark.args[0])
    names = getattr(item, "fixturenames", ())
    for fixture in SHARED_FIXTURES:
        if fixture in names:
            item.add_marker(pytest.mark.xdist_group(fixture))
            return fixture
    return item.nodeid.partition("::")[0]


class Dealing(LoadScopeScheduling):  # type: ignore[misc]
    """Deals groups and files in the order in which `group_tests` has put them."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        test_id, _, group = nodeid.rpartition("@")
        # An at sign inside brackets is part of a parameter.
        is_grouped = bool(test_id) and "]" not in group
        return group if is_grouped else nodeid.partition("::")[0]
