"""The store's rules of a time zone, as a copy keeps them."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from psoup.v1 import psoup_pb2 as pb


def zone_content(rules: pb.ZoneRules) -> dict[str, Any]:
    """Return the rules as JSON: name, version, the starts of offsets and the offsets, in
    seconds."""
    return {
        "name": rules.name,
        "version": rules.version,
        "starts": list(accumulate(rules.starts)),
        "offsets": list(rules.offsets),
    }
