"""Progress of long work, so that its caller can pause it or end it.

Work is counted in units of about a nanosecond. Code that evaluates rows spends units as it goes;
without a counter nothing happens. Nothing is spent while a lock is held, because the counter may
let other work go first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Spend: TypeAlias = Callable[[int], None]


def _ignore(units: int) -> None:
    """Count nothing."""


_SPEND: ContextVar[Spend] = ContextVar("spend", default=_ignore)


def spending() -> Spend:
    """Return the function that work in this thread calls with the units of each step; it may
    raise."""
    return _SPEND.get()


@contextmanager
def paced(spend: Spend) -> Iterator[None]:
    """Pass the units that this thread spends in the `with` block to `spend`."""
    token = _SPEND.set(spend)
    try:
        yield
    finally:
        _SPEND.reset(token)
