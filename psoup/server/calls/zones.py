"""Time zones that texts name: the store gets the rules of each before the text is used."""

from __future__ import annotations

from collections.abc import Collection

from datastem.zones import UnknownZone, ZoneRules, Zones, machine_rules, machine_zones
from psoup.errors import UnknownTimeZone
from psoup.server.call import Call
from psoup.server.core import Core
from psoup.write.zones import DefineZone
from querystem.language.tokens.names import suggest
from querystem.query import Query
from querystem.zones import with_zones, zones_of


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


def _rules(name: str) -> ZoneRules:
    try:
        return machine_rules(name)
    except UnknownZone:
        raise UnknownTimeZone([name], suggest(name, machine_zones())) from None
