"""Callers of a server, for tests that call into it without a wire or name who they are."""

from __future__ import annotations

from psoup.server.core import Core
from psoup.server.permission import Acting
from psoup.v1 import psoup_pb2 as pb


def anyone(core: Core) -> Acting:
    """The caller of a server that asks for no credential."""
    return Acting.of(pb.StatusRequest(), core.settings)
