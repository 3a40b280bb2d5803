"""Row policies in plans: which rows of a stream whoever asks may see.

A policy with the values of the caller's claims filled in is a predicate, matched and remembered as
those of queries are, and shared by all callers whose claims make it equal. It is filled in anew for
every plan, so that the claims and the policies of the moment count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from psoup.access.actions import is_bound
from psoup.access.principal import ClaimValue, Principal
from psoup.answers.caches import Memo, UnregisteredIds
from psoup.store import State
from psoup.store.state.access import Policy
from querystem.expressions import TRUE, Expression, Literal, from_json, predicate_key
from querystem.language import filled_policy

# Bytes that are held for each character of a predicate that was filled in.
_HELD = 20
_CLAIM_TYPES = (str, int, float, bool)

# The policies that bind a question, each with its claims filled in: the ids of stream and policy,
# and the key of the predicate. Empty where none binds.
Permission: TypeAlias = tuple[tuple[int, int, str], ...]
_DENIED: Permission = ((0, 0, "denied"),)


@dataclass(frozen=True, slots=True)
class FilledCondition:
    """A policy of a stream with claims filled in: `where` has the id `predicate_id` as other
    predicates have."""

    policy_id: int
    stream_id: int
    predicate_id: int
    key: str
    where: Expression

    @property
    def is_constant(self) -> bool:
        """Tells whether it is the same for all rows, so that nothing has to be matched."""
        return isinstance(self.where, Literal)


# A row is shown where one of the conditions is true; None: no policy binds, all are shown.
RowPolicy: TypeAlias = tuple[FilledCondition, ...] | None


@dataclass(frozen=True, slots=True)
class PolicyFiller:
    """Fills in the policies of streams for one reader, at one moment of the state; to a reader who
    is `denied` nothing is shown."""

    state: State
    reader: Principal
    denied: bool
    unregistered: UnregisteredIds
    memo: Memo

    def policy(self, stream_id: int) -> RowPolicy:
        """The conditions of which rows of a stream must meet one."""
        if self.denied:
            return ()
        if not is_bound(self.state, stream_id, self.reader):
            return None
        policies = self.state.access.policies_of(stream_id)
        found = tuple(self._filled(policy) for policy in policies)
        return None if any(one.where == TRUE for one in found) else found

    def permission(self, policies: Iterable[RowPolicy]) -> Permission:
        """The policies that bind a question, of those of its legs and triggers."""
        bound = {
            (one.stream_id, one.policy_id, one.key) for policy in policies for one in policy or ()
        }
        return _DENIED if self.denied else tuple(sorted(bound))

    def _filled(self, policy: Policy) -> FilledCondition:
        stream_id = policy.stream_id
        key, where = self._predicate(policy)
        known = self.state.predicates.find(stream_id, key)
        id_ = self.unregistered.id_of(stream_id, key) if known is None else known
        return FilledCondition(policy.policy_id, stream_id, id_, key, where)

    def _predicate(self, policy: Policy) -> tuple[str, Expression]:
        """The predicate of a policy with the reader's claims, and its key. It is remembered with
        the types of the values: TRUE is not 1."""
        values = {name: self._claim(name) for name in policy.claims}
        given = tuple((type(value).__name__, value) for value in values.values())
        name = "policy", policy.policy_id, given
        held = self.memo.get(name)
        if isinstance(held, tuple):
            return held
        where = filled_policy(from_json(json.loads(policy.form)), values)
        found = predicate_key(where), where
        self.memo.put(name, found, (len(found[0]) + len(policy.form)) * _HELD)
        return found

    def _claim(self, name: str) -> ClaimValue:
        value = self.reader.claims.get(name)
        return value if isinstance(value, _CLAIM_TYPES) else None
