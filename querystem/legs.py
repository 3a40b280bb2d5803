"""The leaves of a query: references to streams, each with a predicate and a window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from datastem.schema import StreamSchema
from datastem.types import BOOLEAN
from querystem.expressions import TRUE, Call, Expression, Op, factors_of, predicate_key
from querystem.refresh import Refresh
from querystem.validity import ValidWindow
from results.window import UNBOUNDED, TimeWindow, Window


@dataclass(frozen=True)
class AsOf:
    """The instant, and the key, that a row of a keyed stream is looked up by, for each combination
    of the items before: the row that was current then.

    `keys` are the values of the stream's KEY, in its order. With `row`, the row id of a row of
    `stream`, only what was known at that row's position counts.
    """

    instant: Expression
    keys: tuple[Expression, ...]
    row: Expression | None = None
    stream: str = ""


@dataclass(frozen=True)
class Leg:
    """A reference to a stream: the rows that its window holds and for which `where` is true.

    A leg that `has_own_window` keeps it when a caller brings another window. A leg with `as_of` has
    no window: its rows are looked up one by one. With `refresh` the rows change at
    refresh points of the leg only. A leg that stands for a `view` shows the rows of the view: a
    window that a caller brings bounds the ts of those, and chooses in no other way. `moment` is the
    part of the condition that depends on NOW. Over a stream with validities, `valid` is the window
    over those, and `window` is UNBOUNDED.
    """

    stream: str
    where: Expression
    window: Window
    has_own_window: bool = False
    as_of: AsOf | None = None
    refresh: Refresh | None = None
    view: str = ""
    moment: Expression = TRUE
    valid: ValidWindow | None = None

    @cached_property
    def when(self) -> Expression:
        """The condition on NOW: `moment`, and that of the window over validities. It is no part of
        the predicate, and is applied to matching rows at the NOW of the leg."""
        if self.valid is None:
            return self.moment
        both = *self.valid.conditions, *factors_of(self.moment)
        return both[0] if len(both) == 1 else Call(Op.AND, both, BOOLEAN) if both else TRUE

    @property
    def written_window(self) -> Window:
        """The window as it is written."""
        return self.window if self.valid is None else self.valid.window

    def with_window(self, window: Window) -> Leg:
        """Return the leg with another window, over validities if it has one over those."""
        if self.valid is None:
            return replace(self, window=window)
        assert isinstance(window, TimeWindow), "other windows over validities are refused"
        return replace(self, valid=replace(self.valid, window=window))

    @cached_property
    def predicate_key(self) -> str:
        """The normal form of the predicate as text: equal for equal predicates over one stream."""
        return predicate_key(self.where)


def over_validities(leg: Leg, schema: StreamSchema) -> Leg:
    """Return a leg whose window is as it is written, over the validities of its stream's rows if
    they have any."""
    validity, window = schema.validity, leg.window
    if validity is None or leg.as_of is not None:
        return leg
    assert isinstance(window, TimeWindow), "other windows over validities are refused"
    valid = ValidWindow(validity.starts, validity.ends, window, validity.retain)
    return replace(leg, window=UNBOUNDED, valid=valid)
