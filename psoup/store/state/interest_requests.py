"""Interest that servers have requested, further back than the windows of registrations reach.

A caller used a longer window, or asked for an instant long ago. The engine then matches the
predicate that far back, and keeps the matches for a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from datastem.instants import DAY, HOUR, SINCE_EVER

# How long requested interest lasts, and how soon it may be requested again.
INTEREST_TTL, INTEREST_RENEWAL = DAY, HOUR
# A stream has requests for at most this many predicates; the oldest requests are dropped first.
MAX_REQUESTS = 1024


@dataclass(frozen=True, slots=True)
class InterestRequest:
    """A request for the matches of a predicate from the ts `since` on; `stamp` is that of its last
    event."""

    since: int
    stamp: int

    def is_live(self, clock: int) -> bool:
        return clock < self.stamp + INTEREST_TTL


InterestRequests = Mapping[int, InterestRequest]


def is_new_request(requests: InterestRequests, predicate_id: int, since: int, stamp: int) -> bool:
    """Return True if a request is worth an event: it reaches further back, or its renewal is
    due."""
    previous = requests.get(predicate_id)
    return previous is None or since < previous.since or stamp - previous.stamp >= INTEREST_RENEWAL


def with_request(
    requests: InterestRequests, predicate_id: int, since: int | None, stamp: int
) -> InterestRequests:
    """Return the requests after one more event, without expired ones. A `since` of None requests
    all rows."""
    live = {id_: request for id_, request in requests.items() if request.is_live(stamp)}
    before = live.pop(predicate_id, None)
    first = SINCE_EVER if since is None else since
    live[predicate_id] = InterestRequest(min(first, before.since) if before else first, stamp)
    for oldest in list(live)[:-MAX_REQUESTS]:
        del live[oldest]
    return live


def requests_to_json(requests: InterestRequests) -> list[list[int]]:
    return [[id_, request.since, request.stamp] for id_, request in requests.items()]


def requests_from_json(form: Iterable[list[int]]) -> InterestRequests:
    return {id_: InterestRequest(since, stamp) for id_, since, stamp in form}
