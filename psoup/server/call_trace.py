"""The trace of one call: a span for the call, and children for its stages and its commits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from psoup.answers.stages import Stages, timed
from psoup.tracing import Attributes, Tracing, fail, trace_id_of

_NOTHING = nullcontext()
# Status codes of calls that went as they should: a client may give a watch up.
_UNFAILED = ("OK", "CANCELLED")


class CallTrace:
    """The span `psoup.METHOD` of a call, below the span of its caller. For the event loop, but for
    its `stages`, which are for the thread that makes the answer."""

    def __init__(self, tracing: Tracing, rpc: str, metadata: Iterable[tuple[str, Any]]) -> None:
        self._tracing = tracing
        self._span = tracing.begin(f"psoup.{rpc}", metadata)
        self._span.set_attribute("psoup.method", rpc)
        self._is_recorded = self._span.is_recording()
        self.trace_id = trace_id_of(self._span)
        self.shows_sql = tracing.shows_sql
        self.stages = Stages() if self._is_recorded else None

    def note(self, **attributes: str | int) -> None:
        """Set attributes of the call: `rows` becomes `psoup.rows`."""
        self._span.set_attributes(_prefixed(attributes))

    def add_child(self, name: str, began: int, ended: int, **attributes: str | int) -> None:
        """Add a span below that of the call."""
        if self._is_recorded:
            name = f"psoup.{name}"
            self._tracing.add_child(self._span, name, began, ended, _prefixed(attributes))

    @contextmanager
    def child(self, name: str) -> Iterator[dict[str, str | int]]:
        """Make the block a span below that of the call; yield its attributes, to be filled."""
        attributes: dict[str, str | int] = {}
        began = time.time_ns()
        try:
            yield attributes
        finally:
            self.add_child(name, began, time.time_ns(), **attributes)

    def end(self, code: str, reason: str) -> None:
        stages = self.stages
        if stages is not None:
            # A copy: the call may have been given up while a thread still makes its answer.
            for name, seconds in stages.seconds.copy().items():
                began = stages.began[name]
                self.add_child(name, began, began + round(max(0.0, seconds) * 1e9))
        self._span.set_attribute("psoup.code", code)
        if code not in _UNFAILED:
            fail(self._span, reason or code)
        self._span.end()


def traced_child(
    trace: CallTrace | None, name: str
) -> AbstractContextManager[dict[str, str | int] | None]:
    """Return the span of a block; one that does nothing if the call is not traced."""
    return _NOTHING if trace is None else trace.child(name)


def stage_of(trace: CallTrace | None, name: str) -> AbstractContextManager[None]:
    """Return the timer of a stage of a call."""
    return timed(stages_of(trace), name)


def stages_of(trace: CallTrace | None) -> Stages | None:
    return None if trace is None else trace.stages


def _prefixed(attributes: Attributes) -> Attributes:
    return {f"psoup.{name}": value for name, value in attributes.items()}
