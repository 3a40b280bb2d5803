"""Row policies in plans: which rows of a stream the caller may see.

A policy with the caller's claims filled in is a predicate. It is matched and cached as those of
queries are, and shared by all callers whose claims make it equal. It is filled in again for every
plan, so that the present claims and policies count.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from psoup.access.actions import is_bound
from psoup.access.principal import ClaimValue, Principal
from psoup.answers.caches import Memo, UnregisteredIds
from psoup.store import State
from psoup.store.state.access import Policy
from psoup.store.state.quarantine import MACHINE_ERRORS
from querystem.expressions import TRUE, Expression, Literal, from_json, predicate_key
from querystem.index.trial import try_predicate
from querystem.language import filled_policy
from querystem.language.normal_form.normal import FALSE
from querystem.zones import renewed

log = logging.getLogger(__name__)

# Bytes that a filled-in predicate takes in memory for each character, about.
_BYTES_PER_CHARACTER = 20
_CLAIM_TYPES = (str, int, float, bool)

# What limits the rows that a reader may see. For a policy that binds, with claims filled in: the
# ids of stream and policy, and the predicate key. For a stream that may be read only through views:
# its id, 0 and an empty key. Empty if the reader may read all rows.
Permission: TypeAlias = tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class FilledCondition:
    """A policy of a stream with claims filled in. `where` has the id `predicate_id` as other
    predicates have. A policy that is set aside permits nothing."""

    policy_id: int
    stream_id: int
    predicate_id: int
    key: str
    where: Expression
    is_set_aside: bool = False

    @property
    def is_constant(self) -> bool:
        """Whether it is the same for all rows, so that nothing has to be matched."""
        return isinstance(self.where, Literal)


# A row is permitted if one of the conditions is true. None: no policy binds, all are permitted.
RowPolicy: TypeAlias = tuple[FilledCondition, ...] | None


@dataclass(frozen=True, slots=True)
class PolicyFiller:
    """Fills in the policies of streams for one reader, at one moment of the state. `set_aside` are
    the predicates that the engine has in quarantine."""

    state: State
    reader: Principal
    unregistered: UnregisteredIds
    memo: Memo
    set_aside: frozenset[int] = frozenset()

    def policy(self, stream_id: int) -> RowPolicy:
        """Return the conditions of which rows of a stream must meet one; None if all rows are
        permitted."""
        if not is_bound(self.state, stream_id, self.reader):
            return None
        policies = self.state.access.policies_of(stream_id)
        conditions = tuple(self._filled(policy) for policy in policies)
        return None if any(condition.where == TRUE for condition in conditions) else conditions

    def _filled(self, policy: Policy) -> FilledCondition:
        stream_id = policy.stream_id
        key, where = self._predicate(policy)
        id_ = self._id_of(stream_id, key)
        is_set_aside = id_ in self.set_aside
        if is_set_aside:
            # Its own key is part of the permission, so that copies lose the rows it permitted.
            key, where = predicate_key(FALSE), FALSE
            id_ = self._id_of(stream_id, key)
        return FilledCondition(policy.policy_id, stream_id, id_, key, where, is_set_aside)

    def _id_of(self, stream_id: int, key: str) -> int:
        registered = self.state.predicates.find(stream_id, key)
        return self.unregistered.id_of(stream_id, key) if registered is None else registered

    def _predicate(self, policy: Policy) -> tuple[str, Expression]:
        """Return the predicate key and the predicate of a policy with the reader's claims."""
        values = {name: self._claim(name) for name in policy.claims}
        # The types are part of the cache key: TRUE is not 1.
        claims = tuple((type(value).__name__, value) for value in values.values())
        form = renewed(policy.form, self.state.zones)
        name = "policy", policy.policy_id, claims, "" if form == policy.form else form
        cached = self.memo.get(name)
        if isinstance(cached, tuple):
            return cached
        key, where = self._fill_and_try(policy, form, values)
        self.memo.put(name, (key, where), (len(key) + len(policy.form)) * _BYTES_PER_CHARACTER)
        return key, where

    def _fill_and_try(
        self, policy: Policy, form: str, values: Mapping[str, ClaimValue]
    ) -> tuple[str, Expression]:
        """Fill a policy in, whose condition has this form, and try it, since it goes into the log
        as soon as it is used. A policy that can't be evaluated permits nothing: no claim makes a
        call fail."""
        try:
            where = filled_policy(from_json(json.loads(form)), values)
            key = predicate_key(where)
            if not isinstance(where, Literal):
                try_predicate(key, self.state.streams[policy.stream_id].schema.types)
        except MACHINE_ERRORS:
            raise
        except Exception:
            log.exception("policy %d can't be evaluated; it permits nothing", policy.policy_id)
            return predicate_key(FALSE), FALSE
        return key, where

    def _claim(self, name: str) -> ClaimValue:
        value = self.reader.claim(name)
        return value if isinstance(value, _CLAIM_TYPES) else None


def permission_of(policies: Iterable[RowPolicy], unread: Iterable[int]) -> Permission:
    """Return the permission of a question, from the policies of its legs and triggers, and the
    streams that are `unread` except through views."""
    binding = {
        (condition.stream_id, condition.policy_id, condition.key)
        for policy in policies
        for condition in policy or ()
    }
    return tuple(sorted(binding | {(stream_id, 0, "") for stream_id in unread}))
