"""Where random things come from: Hypothesis, which makes a failing case small, or a number, which
gives thousands of unlike cases fast."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


class Chance(Protocol):
    def number(self, low: int, high: int) -> int:
        """Return a whole number; both ends may come."""
        ...

    def pick(self, choices: Sequence[T]) -> T: ...

    def one_in(self, count: int) -> bool: ...


@dataclass(frozen=True)
class Drawn:
    draw: Callable[[SearchStrategy[Any]], Any]

    def number(self, low: int, high: int) -> int:
        drawn: int = self.draw(st.integers(low, high))
        return drawn

    def pick(self, choices: Sequence[T]) -> T:
        drawn: T = self.draw(st.sampled_from(choices))
        return drawn

    def one_in(self, count: int) -> bool:
        """Rarely true; the simplest case is one where it is not."""
        return self.number(0, count - 1) == count - 1


@dataclass(frozen=True)
class Seeded:
    source: random.Random

    def number(self, low: int, high: int) -> int:
        return self.source.randint(low, high)

    def pick(self, choices: Sequence[T]) -> T:
        return self.source.choice(choices)

    def one_in(self, count: int) -> bool:
        return self.source.randrange(count) == 0
