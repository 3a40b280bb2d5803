"""Row policies in plans: which rows of a stream the caller may see.

A policy with the caller's claims filled in is a predicate. It is matched and cached as those of
queries are, and shared by all callers whose claims make it equal. It is filled in again for every
plan, so that the present claims and policies count.

A policy may also say of NOW when a row is visible. That is the present NOW of the stream, whatever
instant an answer is as of: nobody reads by asking for an earlier one what is hidden now.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from datastem.types import BOOLEAN
from psoup.access.actions import is_bound
from psoup.access.principal import ClaimValue, Principal
from psoup.answers.caches import Memo, UnregisteredIds
from psoup.store import State, StreamState
from psoup.store.state.access import Policy
from psoup.store.state.quarantine import MACHINE_ERRORS
from querystem.expressions import (
    TRUE,
    Call,
    Expression,
    Literal,
    Op,
    at_instant,
    from_json,
    predicate_key,
)
from querystem.index.trial import try_predicate
from querystem.language import apart, filled_policy
from querystem.language.normal_form.normal import FALSE
from querystem.visibility import Visibility, visibility_of
from querystem.zones import renewed

log = logging.getLogger(__name__)

# Bytes that a filled-in predicate takes in memory for each character, about.
_BYTES_PER_CHARACTER = 20
_CLAIM_TYPES = (str, int, float, bool)

# What limits the rows that a reader may see. For a policy that binds, with claims filled in: the
# ids of stream and policy, and its `rule`. For a stream that may be read only through views: its
# id, 0 and an empty text. Empty if the reader may read all rows.
Permission: TypeAlias = tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class FilledCondition:
    """A policy of a stream with claims filled in. `where` has the id `predicate_id` and the key
    `key` as other predicates have. `when` is what the policy says of NOW, which is `now`. A policy
    that is set aside permits nothing."""

    policy_id: int
    stream_id: int
    predicate_id: int
    key: str
    where: Expression
    is_set_aside: bool = False
    when: Expression = TRUE
    now: int | None = None

    @property
    def permits_nothing(self) -> bool:
        """Whether it is false for all rows, so that nothing has to be matched."""
        return isinstance(self.where, Literal) and self.where != TRUE

    @property
    def permits_all(self) -> bool:
        return self.where == TRUE and not self.moves

    @property
    def moves(self) -> bool:
        """Whether time alone changes which rows it permits."""
        return self.when != TRUE

    @property
    def visibility(self) -> Visibility:
        visibility = visibility_of(self.when)
        assert visibility is not None, "a policy is created only if it says when rows are visible"
        return visibility

    @property
    def present(self) -> Expression:
        """The whole condition, with the instant in the place of NOW."""
        when = at_instant(self.when, self.now)
        return Call(Op.AND, (self.where, when), BOOLEAN) if self.moves else self.where

    @property
    def rule(self) -> str:
        """The whole condition as text, the same at every NOW."""
        return f"{self.key} {predicate_key(self.when)}" if self.moves else self.key

    @property
    def subject(self) -> tuple[int, ...]:
        """The cache key of the rows that it permits."""
        return (self.predicate_id, self.now or 0) if self.moves else (self.predicate_id,)


# A row is permitted if one of the conditions is true. None: no policy binds, all are permitted.
RowPolicy: TypeAlias = tuple[FilledCondition, ...] | None


def policy_at(policy: RowPolicy, now: int | None) -> RowPolicy:
    """Return a policy as it is at another NOW of its stream."""
    if not moves(policy):
        return policy
    return tuple(replace(condition, now=now) for condition in policy or ())


def moves(policy: RowPolicy) -> bool:
    """Return True if time alone changes which rows a policy permits."""
    return any(condition.moves for condition in policy or ())


@dataclass(frozen=True, slots=True)
class PolicyFiller:
    """Fills in the policies of streams for one reader, at one moment of the state. `now_of` returns
    the present NOW of a stream. `set_aside` are the predicates that the engine has in
    quarantine."""

    state: State
    reader: Principal
    unregistered: UnregisteredIds
    memo: Memo
    now_of: Callable[[StreamState], int | None]
    set_aside: frozenset[int] = frozenset()

    def policy(self, stream_id: int) -> RowPolicy:
        """Return the conditions of which rows of a stream must meet one; None if all rows are
        permitted."""
        if not is_bound(self.state, stream_id, self.reader):
            return None
        policies = self.state.access.policies_of(stream_id)
        conditions = tuple(self._filled(policy) for policy in policies)
        return None if any(condition.permits_all for condition in conditions) else conditions

    def _filled(self, policy: Policy) -> FilledCondition:
        stream_id = policy.stream_id
        key, where, when = self._conditions(policy)
        id_ = self._id_of(stream_id, key)
        is_set_aside = id_ in self.set_aside
        if is_set_aside:
            # Its own key is part of the permission, so that copies lose the rows it permitted.
            key, where, when = predicate_key(FALSE), FALSE, TRUE
            id_ = self._id_of(stream_id, key)
        now = None if when == TRUE else self.now_of(self.state.streams[stream_id])
        identity = policy.policy_id, stream_id, id_
        return FilledCondition(*identity, key, where, is_set_aside, when, now)

    def _id_of(self, stream_id: int, key: str) -> int:
        registered = self.state.predicates.find(stream_id, key)
        return self.unregistered.id_of(stream_id, key) if registered is None else registered

    def _conditions(self, policy: Policy) -> tuple[str, Expression, Expression]:
        """Return the predicate key and the predicate of a policy with the reader's claims, and what
        it says of NOW."""
        values = {name: self._claim(name) for name in policy.claims}
        # The types are part of the cache key: TRUE is not 1.
        claims = tuple((type(value).__name__, value) for value in values.values())
        form = renewed(policy.form, self.state.zones)
        name = "policy", policy.policy_id, claims, "" if form == policy.form else form
        cached = self.memo.get(name)
        if isinstance(cached, tuple):
            return cached
        filled = self._fill_and_try(policy, form, values)
        self.memo.put(name, filled, (len(filled[0]) + len(policy.form)) * _BYTES_PER_CHARACTER)
        return filled

    def _fill_and_try(
        self, policy: Policy, form: str, values: Mapping[str, ClaimValue]
    ) -> tuple[str, Expression, Expression]:
        """Fill a policy in, whose condition has this form, and try it, since it goes into the log
        as soon as it is used. A policy that can't be evaluated permits nothing: no claim makes a
        call fail."""
        try:
            where, when = apart(filled_policy(from_json(json.loads(form)), values))
            key = predicate_key(where)
            if not isinstance(where, Literal):
                try_predicate(key, self.state.streams[policy.stream_id].schema.types)
        except MACHINE_ERRORS:
            raise
        except Exception:
            log.exception("policy %d can't be evaluated; it permits nothing", policy.policy_id)
            return predicate_key(FALSE), FALSE, TRUE
        return key, where, when

    def _claim(self, name: str) -> ClaimValue:
        value = self.reader.claim(name)
        return value if isinstance(value, _CLAIM_TYPES) else None


def permission_of(policies: Iterable[RowPolicy], unread: Iterable[int]) -> Permission:
    """Return the permission of a question, from the policies of its legs and triggers, and the
    streams that are `unread` except through views."""
    binding = {
        (condition.stream_id, condition.policy_id, condition.rule)
        for policy in policies
        for condition in policy or ()
    }
    return tuple(sorted(binding | {(stream_id, 0, "") for stream_id in unread}))
