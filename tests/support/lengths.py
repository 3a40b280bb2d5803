"""What of a parametrized test is part of the short run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def short_first(values: Iterable[Any], short_count: int = 1) -> list[Any]:
    """Return parameters of which only the first `short_count` belong to the short run; the others
    are marked as long."""
    return [
        value if place < short_count else pytest.param(value, marks=pytest.mark.long)
        for place, value in enumerate(values)
    ]
