"""What ended with a stream or view that was dropped, for people."""

from __future__ import annotations

from collections.abc import Sequence

from client_sdk import Ended, Grant
from psoup.cli.output import note


def grantee(grant: Grant) -> str:
    return f"role {grant.role}" if grant.role else f"owner {grant.owner}"


def note_ended(ended: Ended) -> None:
    """Print a line for each kind of object that ended."""
    grants = [f"{one.action} on {one.object} to {grantee(one)}" for one in ended.grants]
    queries = [
        f"{one.client_key or one.handle.hex()} of {one.owner}" for one in ended.registrations
    ]
    _note("views", ended.views, ended.view_count)
    _note("row policies", ended.policies, ended.policy_count)
    _note("grants", grants, ended.grant_count)
    _note("queries that can't be answered any more", queries, ended.registration_count)


def _note(kind: str, names: Sequence[str], count: int) -> None:
    if count:
        more = f" and {count - len(names):,} more" if count > len(names) else ""
        note(f"{kind}: {', '.join(names)}{more}")
