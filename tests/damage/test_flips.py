"""No flipped bit deceives a reader, and none ends its process: a sample, and all at length."""

from __future__ import annotations

import logging
import multiprocessing
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.damage.flips import turn_over
from tests.damage.world import make


def run(root: Path, seed: int, most: int | None, told: Any) -> None:
    logging.disable()
    told.put(turn_over(root, seed, most))


def outcomes(root: Path, seed: int, most: int | None) -> Counter[str]:
    """What `turn_over` finds, in a process that may die of it."""
    context = multiprocessing.get_context("spawn")
    told = context.SimpleQueue()
    process = context.Process(target=run, args=(root, seed, most, told))
    process.start()
    process.join()
    assert process.exitcode == 0, "a reader was deceived, or died: see the output"
    found: Counter[str] = told.get()
    return found


def test_a_sample_of_flipped_bits(tmp_path: Path) -> None:
    make(tmp_path / "store")
    found = outcomes(tmp_path / "store", 3, 40)
    assert found["named"] > 1000 and found["right"] and found["hole"], found


@pytest.mark.soak
@pytest.mark.timeout(24 * 3600)
def test_every_flipped_bit(tmp_path: Path) -> None:
    make(tmp_path / "store")
    assert outcomes(tmp_path / "store", 4, None)["named"] > 100_000
