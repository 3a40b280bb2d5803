"""Interest that servers have asked for: rows further back than the windows of registrations reach.

Somebody brought a longer window, or asked about an instant long ago. The engine then matches the
predicate as far back, and keeps what it matched for a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from datastem.instants import DAY, HOUR, SINCE_EVER

# So long interest that was asked for holds, and so long nobody asks for it again.
INTEREST_TTL, INTEREST_RENEWAL = DAY, HOUR
# So many predicates of a stream at most; those asked for longest ago are forgotten first.
MAX_REQUESTS = 1024


@dataclass(frozen=True, slots=True)
class InterestRequest:
    """Somebody wants the rows of a predicate from a ts on; `stamp` is that of the last event that
    said so."""

    since: int
    stamp: int

    def is_live(self, clock: int) -> bool:
        return clock < self.stamp + INTEREST_TTL


InterestRequests = Mapping[int, InterestRequest]


def is_new_request(requests: InterestRequests, predicate_id: int, since: int, stamp: int) -> bool:
    """Return whether it is worth an event that a predicate is wanted from `since` on."""
    previous = requests.get(predicate_id)
    return previous is None or since < previous.since or stamp - previous.stamp >= INTEREST_RENEWAL


def with_request(
    requests: InterestRequests, predicate_id: int, since: int | None, stamp: int
) -> InterestRequests:
    """Return the interest after one more event; None asks for all rows. What is over is left
    out."""
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
