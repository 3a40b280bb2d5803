"""Rules of time zones as messages."""

from __future__ import annotations

import numpy as np

from datastem.instants import SECOND
from datastem.zones import ZoneRules
from psoup.v1 import psoup_pb2 as pb


def zone_message(rules: ZoneRules) -> pb.ZoneRules:
    """Return the rules with each start in seconds since the one before."""
    return pb.ZoneRules(
        name=rules.name,
        version=rules.version,
        starts=np.diff(rules.starts[1:] // SECOND, prepend=0).tolist(),
        offsets=(rules.offsets // SECOND).tolist(),
    )
