"""Lines that say what ended together with a dropped stream, view or function."""

from __future__ import annotations

from collections.abc import Sequence

from client_sdk import Ended, Grant
from psoup.cli.output import note


def grantee(grant: Grant) -> str:
    """Return who has the grant: "role field" or "owner gate"."""
    return f"role {grant.role}" if grant.role else f"owner {grant.owner}"


def note_ended(ended: Ended) -> None:
    """Print a line for each kind of object that ended."""
    grants = [f"{grant.action} on {grant.object} to {grantee(grant)}" for grant in ended.grants]
    queries = [
        f"{query.client_key or query.handle.hex()} of {query.owner}"
        for query in ended.registrations
    ]
    _note("views and functions", ended.views, ended.view_count)
    _note("row policies", ended.policies, ended.policy_count)
    _note("grants", grants, ended.grant_count)
    _note("queries that can no longer be answered", queries, ended.registration_count)


def _note(kind: str, names: Sequence[str], count: int) -> None:
    if count:
        more = f" and {count - len(names):,} more" if count > len(names) else ""
        note(f"{kind}: {', '.join(names)}{more}")
