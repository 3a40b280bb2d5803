"""Files of composites that retention removes: their combinations, or rows of `joins/<id>`, are of
rows that the stems no longer have."""

from __future__ import annotations

from collections.abc import Iterator

from psoup.engine.composites.boxes import edges_of
from psoup.engine.composites.lookup.edges import all_sides
from psoup.engine.ledger import Ledger, joins_name, stem_name
from psoup.store.delta.files import DataFile
from psoup.store.layout import combination_part
from psoup.store.state.composites import CompositeState


def past_files(ledger: Ledger) -> Iterator[tuple[str, list[DataFile]]]:
    """Yield the files of composites without a combination, or row, whose rows are all in the stems,
    by table."""
    for composite in ledger.state.composites.values():
        if composite.id not in ledger.composites:
            continue
        floors = [ledger.floor(stream) for stream in composite.legs]
        # A combination needs all of its parts, so one leg without any is enough.
        yield (
            stem_name(composite.id),
            [
                file
                for file in ledger.files(stem_name(composite.id))
                if any(file.high[combination_part(leg)] < floor for leg, floor in enumerate(floors))
            ],
        )
        yield (
            joins_name(composite.id),
            [file for file in ledger.files(joins_name(composite.id)) if _is_past(file, floors)],
        )


def _is_past(file: DataFile, floors: list[int]) -> bool:
    # A file may have rows of every leg, and its bounds do not say of which.
    return file.high["row_id"] < min(floors)


def side_floors(ledger: Ledger, composite: CompositeState) -> tuple[int, ...]:
    """Return the least row id in the stem of each side's leg."""
    sides = all_sides(edges_of(*composite.identity))
    return tuple(ledger.floor(composite.legs[side.leg]) for side in sides)
