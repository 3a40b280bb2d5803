"""The identity of a store: its format, its id and its incarnation.

They stand as JSON in the description of the log table. A program opens stores of its own format
only: no store of an earlier format was ever released.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from psoup.store.delta import DeltaFolder
from psoup.store.errors import NotAStore, UnsupportedFormat
from psoup.store.layout import FORMAT


def new_identity() -> str:
    """Return the description of a new store's log."""
    return json.dumps({"psoup": FORMAT, "store": uuid.uuid4().hex, "incarnation": uuid.uuid4().hex})


def read_identity(root: Path) -> dict[str, Any]:
    """Return the identity of the store at `root`: `psoup` is its format.

    Raise NotAStore if the description is not a store's, UnsupportedFormat for another format.
    """
    identity = _identity(root)
    if problem := refusal_of(identity["psoup"]):
        raise UnsupportedFormat(problem)
    return identity


def format_of(root: Path) -> int:
    """Return the format of the store at `root`, whether it can be opened or not. Raise
    NotAStore."""
    if not DeltaFolder(root / "log").exists:
        raise NotAStore(f"{root} is not a store")
    return int(_identity(root)["psoup"])


def refusal_of(number: int) -> str:
    """Return why a store of a format can't be opened, and what to do; empty if it can be."""
    if number > FORMAT:
        return f"the store has format {number}, this version reads format {FORMAT}: upgrade psoup"
    if number < FORMAT:
        return (
            f"the store has format {number}, which was never released; this version reads format "
            f"{FORMAT}: make a new store and publish the rows again"
        )
    return ""


def _identity(root: Path) -> dict[str, Any]:
    try:
        identity = dict(json.loads(DeltaFolder(root / "log").description))
        return {**identity, "psoup": int(identity["psoup"])}
    except (ValueError, KeyError, TypeError):
        raise NotAStore(f"{root} holds a table named log that is not a store's") from None
