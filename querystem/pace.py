"""How long work tells how far it is, so that whoever runs it may hold it or end it there.

Work is counted in units: about a nanosecond of a plain operation. What evaluates rows spends them
as it goes; where nobody counts them nothing happens. Nothing is spent while a lock is held, since
whoever counts may let others go first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Spend: TypeAlias = Callable[[int], None]


def _nothing(units: int) -> None:
    """Nobody counts."""


_SPEND: ContextVar[Spend] = ContextVar("spend", default=_nothing)


def spending() -> Spend:
    """What to call with the units of every step, in this thread. It may raise."""
    return _SPEND.get()


@contextmanager
def paced(spend: Spend) -> Iterator[None]:
    """Within it the units of this thread go to `spend`."""
    token = _SPEND.set(spend)
    try:
        yield
    finally:
        _SPEND.reset(token)
