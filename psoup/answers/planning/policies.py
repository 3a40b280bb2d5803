"""Row policies in plans: which rows of a stream whoever asks may see.

A policy with the values of the caller's claims filled in is a predicate, matched and remembered as
those of queries are, and shared by all callers whose claims make it equal. It is filled in anew for
every plan, so that the claims and the policies of the moment count.
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

log = logging.getLogger(__name__)

# Bytes that are held for each character of a predicate that was filled in.
_HELD = 20
_CLAIM_TYPES = (str, int, float, bool)

# What bounds a reader's view of streams. For a policy that binds, with its claims filled in: the
# ids of stream and policy, and the key of the predicate. For a stream that may be read only through
# views: its id, 0 and no key. Empty if the reader may read all rows.
Permission: TypeAlias = tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class FilledCondition:
    """A policy of a stream with claims filled in: `where` has the id `predicate_id` as other
    predicates have. One that is set aside shows nothing."""

    policy_id: int
    stream_id: int
    predicate_id: int
    key: str
    where: Expression
    is_set_aside: bool = False

    @property
    def is_constant(self) -> bool:
        """Tells whether it is the same for all rows, so that nothing has to be matched."""
        return isinstance(self.where, Literal)


# A row is shown where one of the conditions is true; None: no policy binds, all are shown.
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
        """The conditions of which rows of a stream must meet one."""
        if not is_bound(self.state, stream_id, self.reader):
            return None
        policies = self.state.access.policies_of(stream_id)
        found = tuple(self._filled(policy) for policy in policies)
        return None if any(one.where == TRUE for one in found) else found

    def _filled(self, policy: Policy) -> FilledCondition:
        stream_id = policy.stream_id
        key, where = self._predicate(policy)
        id_ = self._id_of(stream_id, key)
        is_set_aside = id_ in self.set_aside
        if is_set_aside:
            # Its own key is part of the permission, so that copies lose the rows it showed.
            key, where = predicate_key(FALSE), FALSE
            id_ = self._id_of(stream_id, key)
        return FilledCondition(policy.policy_id, stream_id, id_, key, where, is_set_aside)

    def _id_of(self, stream_id: int, key: str) -> int:
        known = self.state.predicates.find(stream_id, key)
        return self.unregistered.id_of(stream_id, key) if known is None else known

    def _predicate(self, policy: Policy) -> tuple[str, Expression]:
        """The predicate of a policy with the reader's claims, and its key. It is remembered with
        the types of the values: TRUE is not 1."""
        values = {name: self._claim(name) for name in policy.claims}
        given = tuple((type(value).__name__, value) for value in values.values())
        name = "policy", policy.policy_id, given
        held = self.memo.get(name)
        if isinstance(held, tuple):
            return held
        found = self._tried(policy, values)
        self.memo.put(name, found, (len(found[0]) + len(policy.form)) * _HELD)
        return found

    def _tried(self, policy: Policy, values: Mapping[str, ClaimValue]) -> tuple[str, Expression]:
        """Fill a policy in and try it, since it goes into the log as soon as it is used. One that
        can't be evaluated shows nothing: no claim makes a call fail."""
        try:
            where = filled_policy(from_json(json.loads(policy.form)), values)
            key = predicate_key(where)
            if not isinstance(where, Literal):
                try_predicate(key, self.state.streams[policy.stream_id].schema.types)
        except MACHINE_ERRORS:
            raise
        except Exception:
            log.exception("policy %d can't be evaluated; it shows nothing", policy.policy_id)
            return predicate_key(FALSE), FALSE
        return key, where

    def _claim(self, name: str) -> ClaimValue:
        value = self.reader.claim(name)
        return value if isinstance(value, _CLAIM_TYPES) else None


def permission_of(policies: Iterable[RowPolicy], unread: Iterable[int]) -> Permission:
    """The policies that bind a question, of those of its legs and triggers, and the streams that
    are `unread` but for views."""
    bound = {(one.stream_id, one.policy_id, one.key) for policy in policies for one in policy or ()}
    return tuple(sorted(bound | {(stream_id, 0, "") for stream_id in unread}))
