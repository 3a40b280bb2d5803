"""Row policies as proposals: creating and dropping them, and the predicates that they are with the
claims of callers filled in.

Such a predicate comes when its claims are first used, and ends when nobody has used it for long, or
soon after its policy: there may be a hundred thousand of one policy, so they end some at a time. No
answer waits for either: until a predicate is matched, servers compute it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from datastem.instants import DAY
from psoup.errors import NoSuchPolicy, PolicyExists, ServerError
from psoup.lookup import find_stream
from psoup.store import Position, State, StoreError, StreamState
from psoup.store.log.access_events import AccessEnded, AccessPut
from psoup.store.state.access import FilledPolicy, Policy
from psoup.write.appender import Appender, LogTail
from psoup.write.clock import ClockGuard
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft, Stale
from psoup.write.ids import PredicateIds, new_id
from psoup.write.quotas import check_objects
from querystem.expressions import predicate_key
from querystem.language import PolicyCondition

log = logging.getLogger("psoup.write")

# The use of a predicate is noted once a day.
_NOTED = DAY
_LOOK_SECONDS = 3600.0
# So many are looked at in one go, and end with one event.
_SOME = 1000


@dataclass(frozen=True, slots=True)
class DefinePolicy:
    """Creates a policy of the stream `stream_id`, which its condition was bound to."""

    tenant: str
    owner: str
    name: str
    stream: str
    stream_id: int
    text: str
    condition: PolicyCondition
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return HEADER_BYTES + 4 * len(self.text)

    def propose(self, draft: CommitDraft) -> tuple[StreamState, Position]:
        stream = find_stream(draft.state, self.tenant, self.stream)
        if stream.id != self.stream_id:
            raise Stale
        if find_policy(draft.state, stream.id, self.name) is not None:
            raise PolicyExists(
                f"{self.stream} has a policy {self.name} already",
                got=self.name[:100],
                hint="drop it first, or choose another name",
            )
        check_objects(draft.state, "policies", self.tenant, self.owner)
        form, claims = predicate_key(self.condition.where), self.condition.claims
        whose = new_id(draft.state), self.tenant, self.owner, self.name
        policy = Policy(*whose, stream.id, self.text, form, claims)
        return stream, draft.append(self.tenant, self.owner, AccessPut((policy,)))


@dataclass(frozen=True, slots=True)
class EndPolicy:
    """Drops the policy of a name; what it is for callers ends after it."""

    tenant: str
    owner: str
    name: str
    stream: str
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> tuple[StreamState, Position]:
        stream = find_stream(draft.state, self.tenant, self.stream)
        policy = find_policy(draft.state, stream.id, self.name)
        if policy is None:
            raise NoSuchPolicy(
                f"{self.stream} has no policy {self.name[:100]!r}",
                got=self.name[:100],
                hint="psoup stream show names those it has",
            )
        ended = AccessEnded((("policy", policy.id),))
        return stream, draft.append(self.tenant, self.owner, ended)


def find_policy(state: State, stream_id: int, name: str) -> Policy | None:
    """The policy of a stream by its name; None where there is none."""
    policies = state.access.policies_of(stream_id)
    return next((one for one in policies if one.name == name), None)


# ---- with claims filled in


@dataclass(frozen=True, slots=True)
class FillPolicy:
    """Notes the use of a policy with claims filled in, and makes it a predicate where it is none;
    nothing where the policy has ended, or a use was noted lately."""

    policy_id: int
    key: str
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return HEADER_BYTES + len(self.key)

    def propose(self, draft: CommitDraft) -> None:
        policy = draft.state.access.policies.get(str(self.policy_id))
        if policy is None:
            return
        predicate_id = PredicateIds(draft.state).id_of(policy.stream_id, self.key)
        names = policy.policy_id, policy.stream_id, predicate_id
        filled = FilledPolicy(*names, self.key, draft.stamp)
        if not is_noted(draft.state.access.filled.get(filled.id), draft.stamp):
            draft.append(policy.tenant, policy.owner, AccessPut((filled,)))


def is_noted(filled: FilledPolicy | None, now: int) -> bool:
    """Tells whether a use of a filled policy was noted lately."""
    return filled is not None and now - filled.used < _NOTED


@dataclass(frozen=True, slots=True)
class EndUnused:
    """Ends filled policies that nobody has used for as long as the lease, or whose policy has
    ended."""

    ids: Sequence[str]
    lease: int
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> int:
        """Counts those that end."""
        known = (draft.state.access.filled.get(id_) for id_ in self.ids)
        now, lease = draft.vouched, self.lease
        due = [one for one in known if one is not None and is_due(draft.state, one, now, lease)]
        for tenant in {_tenant(draft.state, one) for one in due}:
            own = [("filled", one.id) for one in due if _tenant(draft.state, one) == tenant]
            draft.append(tenant, "", AccessEnded(tuple(own)))
        return len(due)


def is_due(state: State, filled: FilledPolicy, now: int, lease: int) -> bool:
    """Tells whether a filled policy is to end."""
    gone = str(filled.policy_id) not in state.access.policies
    return gone or now - filled.used >= lease


def _tenant(state: State, filled: FilledPolicy) -> str:
    return state.streams[filled.stream_id].tenant


class PolicyKeeper:
    """Makes predicates of the policies that answers use, and ends those that none uses for as long
    as `lease`, in microseconds, or whose policy has ended."""

    def __init__(self, tail: LogTail, appender: Appender, guard: ClockGuard, lease: int) -> None:
        self._tail = tail
        self._appender = appender
        self._guard = guard
        self._lease = lease
        self._noting: set[tuple[int, str]] = set()
        self._ended = asyncio.Event()

    def used(self, policy_id: int, predicate_id: int, key: str) -> None:
        """An answer uses a policy with claims filled in, whose predicate has that id."""
        known = self._tail.state.access.filled.get(f"{policy_id} {predicate_id}")
        name = policy_id, key
        if name in self._noting or self._appender.stopping or is_noted(known, self._now):
            return
        self._noting.add(name)
        future = self._appender.enqueue(FillPolicy(policy_id, key))
        future.add_done_callback(lambda _: self._noting.discard(name))
        # Nobody waits for it, and the next use tries again.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())

    def policy_ended(self) -> None:
        """A policy has ended, or a stream with its policies: there may be something to end."""
        self._ended.set()

    async def run(self) -> None:
        """Ends what nobody uses, now and then and after a policy, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _LOOK_SECONDS)
            self._ended.clear()
            try:
                await self.end_unused()
            except (ServerError, StoreError) as error:
                log.warning("policies that nobody uses wait: %s", error)

    async def end_unused(self) -> int:
        """Ends the filled policies that nobody has used, and counts them."""
        known, ended = [*self._tail.state.access.filled.values()], 0
        for begin in range(0, len(known), _SOME):
            state, now = self._tail.state, self._now
            some = known[begin : begin + _SOME]
            due = [one.id for one in some if is_due(state, one, now, self._lease)]
            if due:
                ended += await self._appender.submit(EndUnused(due, self._lease))
            # There may be many: others go on in between.
            await asyncio.sleep(0)
        return ended

    @property
    def _now(self) -> int:
        return max(self._guard.now(), self._tail.state.clock)
