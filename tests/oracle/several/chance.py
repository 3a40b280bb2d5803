"""Where random things come from: Hypothesis, which makes a failing case small, or a number, which
gives thousands of unlike cases fast."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

T = TypeVar("T")


class Chance(Protocol):
    def number(self, low: int, high: int) -> int:
        """A whole number; both ends may come."""
        ...

    def pick(self, choices: Sequence[T]) -> T: ...

    def one_in(self, count: int) -> bool: ...


@dataclass(frozen=True)
class Drawn:
    draw: DrawFn

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pick(self, choices: Sequence[T]) -> T:
        return self.draw(st.sampled_from(choices))

    def one_in(self, count: int) -> bool:
        """Rarely true; the simplest case is one where it is not."""
        return self.draw(st.integers(0, count - 1)) == count - 1


@dataclass(frozen=True)
class Seeded:
    source: random.Random

    def number(self, low: int, high: int) -> int:
        return self.source.randint(low, high)

    def pick(self, choices: Sequence[T]) -> T:
        return self.source.choice(choices)

    def one_in(self, count: int) -> bool:
        return self.source.randrange(count) == 0
