"""Queries that the client computes itself, over the base rows of a copy.

The work is done by the store's own evaluator, so that client and store can't disagree. It needs
numpy and sqlglot, which the SDK does without otherwise: `prepare` says so where they are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from client_sdk._wire.models import Stream
from client_sdk._wire.values import Column, Scalar

# What a table of base rows calls the id of a row.
ROW_ID = "_row_id"

_NEEDED = ("numpy", "sqlglot")


class Computation(Protocol):
    """One registered query, bound."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the answer."""

    @property
    def sync_window(self) -> str:
        """The window whose base rows are to be synced; empty for the registered one."""

    def answer(self, rows: pa.Table, now: datetime | None) -> pa.Table:
        """What the store would answer at NOW, given no new data, in its order and types.

        `rows` are those of the copy that are visible at NOW, in any order: `_row_id` and the
        columns the store sent. Raises ValueError where these are not the columns of this query.
        """


def prepare(
    sql: str, parameters: Mapping[str, Scalar] | None, stream: Stream, window: str | None
) -> Computation:
    """`window` is the copy's own, where it is another than the registered one.

    Raises NotComputable, QueryProblem for a text that is none, and ModuleNotFoundError where
    numpy or sqlglot are missing.
    """
    require()
    from client_sdk.copies._compute import computation

    return computation(sql, parameters or {}, stream, window or "")


def require() -> None:
    """Raises ModuleNotFoundError, with what to install, where `prepare` can't work."""
    try:
        for name in _NEEDED:
            __import__(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"base rows are computed with {' and '.join(_NEEDED)}, and {error.name} is missing: "
            "pip install 'psoup[offline]', or keep the copy without base_rows",
            name=error.name,
        ) from error
