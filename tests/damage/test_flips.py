"""No flipped bit deceives a reader, and none ends its process: a sample, and all at length."""

from __future__ import annotations

import logging
import multiprocessing
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.damage.flips import flip_bits
from tests.damage.world import make


def run(root: Path, seed: int, most: int | None, queue: Any) -> None:
    logging.disable()
    queue.put(flip_bits(root, seed, most))


def outcomes(root: Path, seed: int, most: int | None) -> Counter[str]:
    """Return the outcomes of `flip_bits`, in a process that may die of it."""
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=run, args=(root, seed, most, queue))
    process.start()
    process.join()
    assert process.exitcode == 0, "a reader was deceived, or died: see the output"
    counts: Counter[str] = queue.get()
    return counts


def test_a_sample_of_flipped_bits(tmp_path: Path) -> None:
    make(tmp_path / "store")
    counts = outcomes(tmp_path / "store", 3, 40)
    assert counts["named"] > 1000 and counts["right"] and counts["hole"], counts


@pytest.mark.soak
@pytest.mark.timeout(24 * 3600)
def test_every_flipped_bit(tmp_path: Path) -> None:
    make(tmp_path / "store")
    assert outcomes(tmp_path / "store", 4, None)["named"] > 100_000
