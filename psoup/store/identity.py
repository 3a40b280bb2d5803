"""Who a store is and which format it has, as the description of its log table says."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from psoup.store.delta import DeltaFolder
from psoup.store.errors import NotAStore, UnsupportedFormat
from psoup.store.layout import FORMAT

# No version: of a table of format 1 nothing need have a checksum.
NEVER = 1 << 62


def new_identity() -> str:
    return json.dumps({"psoup": FORMAT, "store": uuid.uuid4().hex, "incarnation": uuid.uuid4().hex})


def read_identity(root: Path) -> dict[str, Any]:
    """`psoup` is the format. `checked` names for each table that format 1 began the version from
    which on it has checksums; a table that is not named has them all."""
    identity = _parse(root, DeltaFolder(root / "log", NEVER))
    if identity["psoup"] > FORMAT:
        raise UnsupportedFormat(
            f"the store has format {identity['psoup']}, this version reads up to {FORMAT}: "
            "upgrade psoup"
        )
    if identity["psoup"] < FORMAT:
        return identity
    # Now that it is known which commits bear a hash, none that lacks it is believed.
    return _parse(root, DeltaFolder(root / "log", identity.get("checked", {}).get("log", 0)))


def _parse(root: Path, log: DeltaFolder) -> dict[str, Any]:
    try:
        identity = json.loads(log.description)
        if identity["psoup"] < FORMAT and (later := log.redescribed()):
            identity = json.loads(later)
    except (ValueError, KeyError, TypeError):
        raise NotAStore(f"{root} holds a table named log that is not a store's") from None
    return dict(identity)
