"""How much of a test is part of the short run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

# Examples of a test by default, as tests/conftest.py says.
SHORT_EXAMPLES = 40


def short_first(values: Iterable[Any], short_count: int = 1) -> list[Any]:
    """Return parameters of which only the first `short_count` belong to the short run; the others
    are marked as long."""
    return [
        value if place < short_count else pytest.param(value, marks=pytest.mark.long)
        for place, value in enumerate(values)
    ]


def scaled(short_count: int) -> int:
    """Return how many random cases a test draws: `short_count` in the short run, more with the
    Hypothesis profiles that draw more examples. Call it when the test runs or is collected."""
    return max(1, short_count * settings().max_examples // SHORT_EXAMPLES)
