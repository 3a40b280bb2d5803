"""Random queries over several streams with REFRESH."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from datastem.instants import SECOND
from datastem.schema import StreamSchema
from datastem.types import TIMESTAMP
from tests.oracle.several.chance import Chance
from tests.oracle.several.conditions import Expressions
from tests.oracle.several.drawing import Writer, written
from tests.oracle.several.texts import Whole, placed
from tests.oracle.several.windows import LONGEST_PERIOD, every

# A window is set back by its own REFRESH and by that of the whole.
_SET_BACK = 2 * LONGEST_PERIOD * SECOND


def written_refreshed(chance: Chance, schemas: Sequence[StreamSchema], origin: int = 0) -> Whole:
    """Return a query of which some have REFRESH: of the whole, of references, or both."""
    if not chance.one_in(3):
        return written(chance, schemas, origin)
    narrow = [
        stream if stream.retain is None else replace(stream, retain=stream.retain - _SET_BACK)
        for stream in schemas
    ]
    inside = chance.one_in(2)
    whole = Writer(chance, narrow, origin, refreshed=inside).whole()
    if inside and chance.one_in(2):
        return whole
    return replace(whole, refresh=_refresh(chance, whole, narrow))


def _refresh(chance: Chance, whole: Whole, schemas: Sequence[StreamSchema]) -> str:
    """REFRESH of a whole query. Rows of event time are refreshed by such."""
    if chance.one_in(2):
        return every(chance)
    timed = any(place.reference.stream.ordered_by is not None for place in placed(whole))
    trigger = chance.pick([place for place in schemas if not timed or place.ordered_by is not None])
    columns = {name: type_ for name, type_ in trigger.types.items() if type_ != TIMESTAMP}
    where = f" WHERE {Expressions(chance).local(columns)}" if chance.one_in(2) else ""
    return f"REFRESH ON {trigger.name}{where}"
