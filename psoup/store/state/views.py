"""The views and functions of a state, and the views that registrations went through.

Views, functions and streams share one space of ids and one of names. A dropped view stays in the
state, so that registrations over it can say why they fail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s, Mask
from psoup.store.log.position import Position
from psoup.store.state.columns import InternedColumn, chunks_of
from querystem.user_functions import FunctionDefinition
from querystem.views import ViewDefinition


@dataclass(frozen=True, slots=True)
class ViewState:
    """A view or a function. `over` are the ids of the streams, views and functions that its text
    names, itself or through others."""

    id: int
    tenant: str
    owner: str
    definition: ViewDefinition | FunctionDefinition
    over: tuple[int, ...]
    position: Position
    dropped: bool = False


def kind_of_view(definition: ViewDefinition | FunctionDefinition) -> str:
    """Return "view" or "function"."""
    return "view" if isinstance(definition, ViewDefinition) else "function"


def views_over(views: Mapping[int, ViewState], id_: int) -> list[ViewState]:
    """Return the live views and functions that name a stream, view or function, directly or through
    others; each comes after those that name it."""
    visited: dict[int, ViewState] = {}
    live = [view for view in views.values() if not view.dropped]

    def visit(below: int) -> Iterator[ViewState]:
        for view in live:
            if below in view.over and view.id not in visited:
                yield from visit(view.id)
                visited[view.id] = view
                yield view

    return list(visit(id_))


class ViewIdsColumn:
    """The ids of the views that each registration was bound through. Most have none, and many have
    the same, so the ids are stored as texts, each once."""

    def __init__(self) -> None:
        self._texts = InternedColumn()

    @property
    def nbytes(self) -> int:
        return self._texts.nbytes

    def __getitem__(self, row: int) -> tuple[int, ...]:
        text = self._texts[row]
        return tuple(map(int, text.split(","))) if text else ()

    def append(self, value: Sequence[int]) -> None:
        self._texts.append(ids_text(value))

    def extend(self, values: Any) -> None:
        """Add a row for each text; NULL is a text without ids."""
        for chunk in chunks_of(values):
            plain = chunk.cast(pa.string()) if pa.types.is_dictionary(chunk.type) else chunk
            self._texts.extend(pc.fill_null(plain, ""))

    def naming(self, ids: Collection[int]) -> Mask:
        """Return a mask of the rows that name one of the ids."""
        codes = [
            code
            for code, text in enumerate(self._texts.texts)
            if text and not set(ids).isdisjoint(map(int, text.split(",")))
        ]
        mask: Mask = np.isin(self._texts.codes, codes)
        return mask

    def take(self, rows: Int64s) -> pa.Array:
        return self._texts.take(rows)

    def keep(self, rows: Int64s) -> None:
        self._texts.keep(rows)


def ids_text(ids: Sequence[int]) -> str:
    """Return ids as text for the table `registrations`."""
    return ",".join(map(str, ids))
