"""Time zones that texts name: the store gets the rules of each before the text is used. The call
Zones lists them, and renews their rules."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from datastem.zones import UnknownZone, ZoneRules, Zones, machine_rules, machine_zones
from psoup.errors import UnknownTimeZone
from psoup.server.call import Call
from psoup.server.core import Core
from psoup.server.permission import demand_operator
from psoup.v1 import psoup_pb2 as pb
from psoup.write.zones import (
    DefineZone,
    OutdatedQuery,
    RenewedQuery,
    RenewQueries,
    outdated_handles,
    outdated_query,
)
from querystem.language.tokens.names import suggest
from querystem.pace import spending
from querystem.query import Query
from querystem.zones import with_zones, zones_of

# So many registrations are read again in one commit.
_REGISTRATIONS_PER_COMMIT = 200
# Units (`querystem.pace`) that reading the rules of a zone takes.
_RULES_UNITS = 100_000_000


async def in_its_zones(core: Core, call: Call, query: Query) -> Query:
    """Return a query that was just bound, with the rules of its time zones. Raise
    UnknownTimeZone."""
    return with_zones(query, await zones_for(core, call, zones_of(query)))


async def zones_for(core: Core, call: Call, names: Collection[str]) -> Zones:
    """Return the rules of the store's time zones, after it was given those of these names that it
    did not have. Raise UnknownTimeZone."""
    for name in sorted(set(names) - core.follower.state.zones.keys()):
        rules = await core.in_thread(call, _rules, name)
        await core.submit(call, DefineZone(rules))
    return core.follower.state.zones


async def zones(core: Core, call: Call, request: pb.ZonesRequest) -> pb.ZonesResponse:
    """Return the zones that the store has rules of, after those were renewed that the request
    names. Raise PermissionDenied, UnknownTimeZone."""
    acting = call.acting(request)
    await core.follower.catch_up()
    count = 0
    if request.renew:
        demand_operator(acting, "renew the rules of time zones")
        if unknown := set(request.renew) - core.follower.state.zones.keys():
            raise UnknownTimeZone(unknown)
        for name in sorted(set(request.renew)):
            rules = await core.in_thread(call, _rules, name)
            await core.submit(call, DefineZone(rules, renew=True))
        count = await _renew_registrations(core, call)
    stored = dict(core.follower.state.zones)
    listed = await core.in_thread(call, _listed, stored)
    return pb.ZonesResponse(zones=listed, registration_count=count)


async def _renew_registrations(core: Core, call: Call) -> int:
    """Give registrations the predicates that they have by the present rules; return their
    number."""
    handles = outdated_handles(core.follower.state)
    count = 0
    for first in range(0, len(handles), _REGISTRATIONS_PER_COMMIT):
        batch = handles[first : first + _REGISTRATIONS_PER_COMMIT]
        state = core.follower.state
        outdated = [outdated_query(state, handle) for handle in batch]
        queries = await core.in_thread(call, _renewed, outdated, dict(state.zones))
        count += await core.submit(call, RenewQueries(queries))
    return count


def _renewed(outdated: Sequence[OutdatedQuery | None], stored: Zones) -> list[RenewedQuery]:
    return [query.renewed(stored) for query in outdated if query is not None]


def _listed(stored: Zones) -> list[pb.StoreZone]:
    return [
        pb.StoreZone(name=name, version=stored[name].version, outdated=_is_outdated(stored[name]))
        for name in sorted(stored)
    ]


def _is_outdated(rules: ZoneRules) -> bool:
    spending()(_RULES_UNITS)
    try:
        return not rules.has_rules_of(machine_rules(rules.name))
    except UnknownZone:
        return False


def _rules(name: str) -> ZoneRules:
    spending()(_RULES_UNITS)
    try:
        return machine_rules(name)
    except UnknownZone:
        raise UnknownTimeZone([name], suggest(name, machine_zones())) from None
