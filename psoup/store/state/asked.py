"""Interest that servers have asked for: rows further back than the windows of registrations reach.

Somebody brought a longer window, or asked about an instant long ago. The engine then matches the
predicate as far back, and keeps what it matched for a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from datastem.instants import DAY, HOUR, SINCE_EVER

# So long interest that was asked for holds, and so long nobody asks for it again.
HOLDS, AGAIN = DAY, HOUR
# So many predicates of a stream at most; those asked for longest ago are forgotten first.
MOST_ASKED = 1024


@dataclass(frozen=True, slots=True)
class WantedSince:
    """Somebody wants the rows of a predicate from a ts on; `stamp` is that of the last event that
    said so."""

    since: int
    stamp: int

    def holds(self, clock: int) -> bool:
        return clock < self.stamp + HOLDS


AskedInterest = Mapping[int, WantedSince]


def is_news(asked: AskedInterest, predicate_id: int, since: int, stamp: int) -> bool:
    """Return whether it is worth an event that a predicate is wanted from `since` on."""
    known = asked.get(predicate_id)
    return known is None or since < known.since or stamp - known.stamp >= AGAIN


def asked_also(
    asked: AskedInterest, predicate_id: int, since: int | None, stamp: int
) -> AskedInterest:
    """Return the interest after one more event; None asks for all rows. What is over is left
    out."""
    found = {id_: one for id_, one in asked.items() if one.holds(stamp)}
    before = found.pop(predicate_id, None)
    first = SINCE_EVER if since is None else since
    found[predicate_id] = WantedSince(min(first, before.since) if before else first, stamp)
    for oldest in list(found)[:-MOST_ASKED]:
        del found[oldest]
    return found


def asked_to_json(asked: AskedInterest) -> list[list[int]]:
    return [[id_, one.since, one.stamp] for id_, one in asked.items()]


def asked_from_json(form: Iterable[list[int]]) -> AskedInterest:
    return {id_: WantedSince(since, stamp) for id_, since, stamp in form}
