"""Proposals that create and drop row policies, and those of *filled* policies: the predicates that
a policy becomes with the claims of callers filled in.

A filled policy is created when its claims are first used. It ends if no answer has used it for the
lease, or soon after its policy. One policy may have a hundred thousand, so they end in batches. No
answer waits for either: until a predicate is matched, servers compute it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from datastem.instants import DAY
from psoup.access.principal import Principal
from psoup.errors import NoSuchPolicy, PolicyExists, ServerError
from psoup.lookup import find_stream
from psoup.store import Position, State, StoreError, StreamState
from psoup.store.log.access_events import AccessEnded, AccessPut
from psoup.store.state.access import FilledPolicy, Policy
from psoup.write.appender import Appender, LogTail
from psoup.write.clock import ClockGuard
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft, Stale, check_bound
from psoup.write.ids import PredicateIds, new_id
from psoup.write.quotas import check_objects
from querystem.expressions import predicate_key
from querystem.language import PolicyCondition

log = logging.getLogger("psoup.write")

# The use of a filled policy is noted in the log at most this often.
_NOTE_INTERVAL = DAY
_CHECK_INTERVAL_SECONDS = 3600.0
# Filled policies that are checked together, and end with one event.
_BATCH_SIZE = 1000


@dataclass(frozen=True, slots=True)
class DefinePolicy:
    """Proposal to create a policy of the stream `stream_id`, which its condition is bound to with
    the columns of the packed position `altered_at`."""

    tenant: str
    owner: str
    name: str
    stream: str
    stream_id: int
    text: str
    condition: PolicyCondition
    altered_at: int = 0
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return HEADER_BYTES + 4 * len(self.text)

    def propose(self, draft: CommitDraft) -> tuple[StreamState, Position]:
        stream = find_stream(draft.state, self.tenant, self.stream)
        # The name may be that of a newer stream, which the condition is not bound to.
        if stream.id != self.stream_id:
            raise Stale
        check_bound(draft.state, [stream.id], self.altered_at)
        if find_policy(draft.state, stream.id, self.name) is not None:
            raise PolicyExists(
                f"{self.stream} has a policy {self.name} already",
                got=self.name[:100],
                hint="drop it first, or choose another name",
            )
        check_objects(draft.state, "policies", self.tenant, self.owner)
        form, claims = predicate_key(self.condition.where), self.condition.claims
        identity = new_id(draft.state), self.tenant, self.owner, self.name
        policy = Policy(*identity, stream.id, self.text, form, claims)
        return stream, draft.append(self.tenant, self.owner, AccessPut((policy,)))


@dataclass(frozen=True, slots=True)
class EndPolicy:
    """Proposal to drop a policy; its filled policies end later."""

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
                hint="`psoup stream show` lists its policies",
            )
        ended = AccessEnded((("policy", policy.id),))
        return stream, draft.append(self.tenant, self.owner, ended)


def find_policy(state: State, stream_id: int, name: str) -> Policy | None:
    """Return the policy of a stream by its name; None if it has none of that name."""
    policies = state.access.policies_of(stream_id)
    return next((policy for policy in policies if policy.name == name), None)


# ---- with claims filled in


@dataclass(frozen=True, slots=True)
class FillPolicy:
    """Proposal to note the use of a filled policy, and to create it if it does not exist.

    It appends nothing if the policy has ended, or a use was noted recently.
    """

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
    """Return True if a use of a filled policy was noted recently."""
    return filled is not None and now - filled.used < _NOTE_INTERVAL


@dataclass(frozen=True, slots=True)
class EndUnused:
    """Proposal to end filled policies that were not used for as long as the lease, or whose policy
    has ended."""

    ids: Sequence[str]
    lease: int
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> int:
        """Return the number of those that end."""
        candidates = (draft.state.access.filled.get(id_) for id_ in self.ids)
        # Unconfirmed jumps of the clock must not end anything.
        now, lease = draft.vouched, self.lease
        due = [
            filled
            for filled in candidates
            if filled is not None and is_due(draft.state, filled, now, lease)
        ]
        # An event names one tenant.
        for tenant in {_tenant(draft.state, filled) for filled in due}:
            ids = [
                ("filled", filled.id) for filled in due if _tenant(draft.state, filled) == tenant
            ]
            draft.append(tenant, "", AccessEnded(tuple(ids)))
        return len(due)


def is_due(state: State, filled: FilledPolicy, now: int, lease: int) -> bool:
    """Return True if a filled policy is to end."""
    policy_ended = str(filled.policy_id) not in state.access.policies
    return policy_ended or now - filled.used >= lease


def _tenant(state: State, filled: FilledPolicy) -> str:
    return state.streams[filled.stream_id].tenant


class PolicyKeeper:
    """Creates the filled policies that answers use, and ends those that no answer has used for as
    long as `lease`, in microseconds, or whose policy has ended."""

    def __init__(self, tail: LogTail, appender: Appender, guard: ClockGuard, lease: int) -> None:
        self._tail = tail
        self._appender = appender
        self._guard = guard
        self._lease = lease
        self._noting: set[tuple[int, str]] = set()
        self._ended = asyncio.Event()

    def used(self, policy_id: int, predicate_id: int, key: str, reader: Principal) -> None:
        """Note that an answer for `reader` uses a filled policy, whose predicate has this id and
        key."""
        filled = self._tail.state.access.filled.get(f"{policy_id} {predicate_id}")
        name = policy_id, key
        # Many answers may use a policy at once: one note is enough.
        if name in self._noting or self._appender.stopping or is_noted(filled, self._now):
            return
        self._noting.add(name)
        future = self._appender.enqueue(FillPolicy(policy_id, key), reader.actor)
        future.add_done_callback(lambda _: self._noting.discard(name))
        # No caller awaits the future: take its exception. The next use tries again.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())

    def policy_ended(self) -> None:
        """Note that a policy has ended, or a stream with its policies: wake `run`."""
        self._ended.set()

    async def run(self) -> None:
        """End unused filled policies, at intervals and after the end of a policy, until
        cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _CHECK_INTERVAL_SECONDS)
            # Before the work, so that a policy that ends meanwhile causes another round.
            self._ended.clear()
            try:
                await self.end_unused()
            except (ServerError, StoreError) as error:
                log.warning("could not end unused policies, retrying: %s", error)

    async def end_unused(self) -> int:
        """End the filled policies that are due; return their number."""
        filled_policies, ended = [*self._tail.state.access.filled.values()], 0
        for begin in range(0, len(filled_policies), _BATCH_SIZE):
            # Read for each batch: both change while the previous one is appended.
            state, now = self._tail.state, self._now
            batch = filled_policies[begin : begin + _BATCH_SIZE]
            due = [filled.id for filled in batch if is_due(state, filled, now, self._lease)]
            if due:
                ended += await self._appender.submit(EndUnused(due, self._lease))
            # There may be many: let other tasks of the event loop run in between.
            await asyncio.sleep(0)
        return ended

    @property
    def _now(self) -> int:
        # This clock may be behind the last stamp, and stamps never fall.
        return max(self._guard.now(), self._tail.state.clock)
