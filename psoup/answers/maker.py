"""The maker of answers: the caches that they share, and the way from a question to an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from psoup.access.principal import Principal
from psoup.answers.caches import Memo, UnregisteredIds
from psoup.answers.chosen import ChosenRows
from psoup.answers.evaluate import Answer, evaluate, evaluate_at_once, evaluate_in_chunks
from psoup.answers.joins.join_limits import JoinLimits
from psoup.answers.joins.stored_join import CombinationMatcher
from psoup.answers.matching.implied import ImpliedFinder
from psoup.answers.matching.match_files import MatchFileCache
from psoup.answers.matching.matcher import Matcher, Work
from psoup.answers.matching.permitted_rows import MatchSource, PermittedMatches, PermittedRows
from psoup.answers.matching.present_matches import PartSpans, matches_at, remaining_matches
from psoup.answers.matching.watched import WatchedMatcher
from psoup.answers.planning.plan import (
    CompositePlan,
    LegPlan,
    Neighbours,
    Plan,
    Triggers,
    oldest_retained,
)
from psoup.answers.planning.planner import make_plan
from psoup.answers.planning.policies import FilledCondition, PolicyFiller, RowPolicy
from psoup.answers.planning.question import Question
from psoup.answers.refresh.crossings import Crossing, CrossingFinder
from psoup.answers.refresh.settling import PointFinder, settled
from psoup.answers.replicas.epoch_files import EpochView
from psoup.answers.replicas.view import View
from psoup.answers.rows.key_rows import KeyRows
from psoup.answers.stages import Stages
from psoup.store import Store, StreamState
from querystem.expressions import TRUE, Expression
from results.match_cache import MatchCache

# Bytes that an entry of the memo takes beside its value.
_MEMO_ENTRY_BYTES = 400


class AnswerMaker:
    """Makes answers over one store. Thread-safe, except `plan`, which is for the thread that
    changes the replica.

    The caches take a quarter of `memory`, a number of bytes. `compute_rows` limits the rows that
    one answer may match itself, `joins` what it may take to join its legs. `mask` is a secret of
    MASK_BYTES, for numbers made from values that a caller may not see. If `policy_used` is set, it
    is called for each policy with claims filled in that a plan uses, with the ids of policy and
    predicate, the predicate key, and the reader.
    """

    def __init__(
        self,
        store: Store,
        memory: int = 64 << 20,
        compute_rows: int = 20_000_000,
        joins: JoinLimits | None = None,
        mask: bytes = b"",
    ) -> None:
        self.compute_rows = compute_rows
        self.join_limits = joins or JoinLimits()
        self.matches = MatchCache(memory // 16)
        root, is_newest = store.table("matches").root, store.epochs.is_newest
        self.match_files = MatchFileCache(root, memory // 8, is_newest)
        self.memo: Memo = Memo(memory // 16, _MEMO_ENTRY_BYTES)
        self.unregistered = UnregisteredIds()
        self.implied = ImpliedFinder()
        self._mask = mask
        self._heartbeats = store.table("reached").root
        self.policy_used: Callable[[int, int, str, Principal], None] | None = None

    @property
    def used(self) -> int:
        """The bytes that the caches hold."""
        return self.matches.used + self.memo.used + self.match_files.used

    def forget(self) -> None:
        """Drop what was computed from rows, since some of them are erased."""
        self.memo.clear()

    def answer(self, view: View, question: Question) -> Answer:
        """Return the answer to a question. Raises what `plan` raises, FileNotFoundError,
        TooMuchWork."""
        plan = self.plan(view, question)
        work = self.work(bound=plan.bound)
        return self.evaluate(self.settle(plan, work), work)

    def plan(self, view: View, question: Question) -> Plan:
        """Return the plan of a question. Raises what `make_plan` raises."""
        plan = make_plan(view, question, self.unregistered, self.memo)
        if plan.permission and self.policy_used is not None:
            for condition in plan.conditions:
                ids = condition.policy_id, condition.predicate_id
                self.policy_used(*ids, condition.key, question.reader)
        if plan.unread:
            plan = replace(plan, mask=self._mask)
        return self.implied.prepared(plan, view.state)

    def key_rows(self, view: View, stream: StreamState, reader: Principal) -> KeyRows | None:
        """Return a keyed stream as a reader may see it; None if it was dropped. For the thread that
        changes the replica, as `plan` is."""
        stem = view.find_stem(stream.id)
        keyed = None if stem is None else view.keyed(stream.id, stem)
        if stem is None or keyed is None:
            return None
        set_aside = view.epoch.epoch.quarantine.predicates
        caches = self.unregistered, self.memo
        filler = PolicyFiller(view.state, reader, *caches, view.now_of, set_aside)
        oldest = oldest_retained(stream.schema, view.now_of(stream))
        return KeyRows(stream.schema, stem, keyed, oldest, filler.policy(stream.id))

    def work(
        self,
        *,
        wait_for_engine: bool = False,
        bound: bool = False,
        stages: Stages | None = None,
    ) -> Work:
        """Return the budget of one answer. `bound` says that policies bind the caller."""
        limit = None if wait_for_engine else self.compute_rows
        return Work(limit, bound=bound, stages=stages)

    def settle(self, plan: Plan, work: Work) -> Plan:
        """Return the plan as of its last refresh points. It reads files if rows or events decide
        which these are."""
        return settled(plan, self.points(plan, work)) if plan.unsettled else plan

    def points(self, plan: Plan, work: Work) -> PointFinder:
        """Return a finder of refresh points in the files of the store."""
        finder = CrossingFinder(self._heartbeats, plan.epoch.reached, self.memo)
        return _StoredPoints(finder, self.matchers(plan, work))

    def matchers(self, plan: Plan, work: Work) -> PlanMatchers:
        """Return the matchers of a plan's legs."""
        return PlanMatchers(self, plan.epoch, work)

    def evaluate(self, plan: Plan, work: Work) -> Answer:
        """Return the answer of a settled plan. Raises FileNotFoundError, TooMuchWork, Uncovered."""
        return evaluate(plan, self.matchers(plan, work), self.memo, self.join_limits)

    def evaluate_in_chunks(self, plan: Plan, work: Work, chunk_bytes: int) -> Answer | ChosenRows:
        """Return the answer of a settled plan, or the ids of its rows if those are many. Raises
        what `evaluate` raises."""
        matchers = self.matchers(plan, work)
        return evaluate_in_chunks(plan, matchers, self.memo, self.join_limits, chunk_bytes)

    def evaluate_at_once(self, plan: Plan, work: Work) -> Answer | None:
        """Return the answer of a plan; None if making it takes more than a millisecond or so."""
        return evaluate_at_once(plan, self.matchers(plan, work), self.memo)


@dataclass(frozen=True, slots=True)
class PlanMatchers:
    """The matchers of a plan's legs, with the caches of a maker."""

    maker: AnswerMaker
    epoch: EpochView
    work: Work

    def of(self, leg: LegPlan) -> MatchSource:
        matcher, when = self._of_predicate(leg), leg.present
        if when != TRUE:
            matcher = matches_at(matcher, when, leg.now, self._spans(leg, leg.now))
        stages = self.work.stages
        return matcher if stages is None else WatchedMatcher(matcher, stages)

    def remaining(self, leg: LegPlan, now: int | None) -> MatchSource:
        """Return the matches of a leg's predicate, but for rows whose visibility has ended by
        `now`."""
        matcher, visibility = self._of_predicate(leg), leg.visibility
        if visibility is None or not visibility.ends or now is None:
            return matcher
        return remaining_matches(matcher, visibility, now, self._spans(leg, now, or_later=True))

    def _spans(self, leg: LegPlan, now: int | None, *, or_later: bool = False) -> PartSpans | None:
        visibility = leg.visibility
        if visibility is None or now is None:
            return None
        return PartSpans(self.maker.memo, leg.stream_id, visibility, now, or_later)

    def at_any_now(self, leg: LegPlan, condition: FilledCondition) -> MatchSource:
        """Return the matches of a leg's predicate that a condition of its policy permits at some
        NOW."""
        matcher = self._matcher(leg.predicate_id, leg.stream_id, leg.leg.where, leg.neighbours)
        always = replace(condition, when=TRUE)
        return PermittedMatches(
            matcher, PermittedRows([self._permitting(always)], (condition.predicate_id,))
        )

    def _of_predicate(self, leg: LegPlan) -> MatchSource:
        subject = leg.predicate_id, leg.stream_id, leg.leg.where
        return self._permitted(self._matcher(*subject, leg.neighbours), leg.policy)

    def of_triggers(self, triggers: Triggers) -> MatchSource:
        subject = triggers.predicate_id, triggers.stream_id, triggers.where
        return self._permitted(self._matcher(*subject), triggers.policy)

    def _permitted(self, matcher: Matcher, policy: RowPolicy) -> MatchSource:
        """Return the matches among the rows that a policy permits."""
        if policy is None:
            return matcher
        permitting = [condition for condition in policy if not condition.permits_nothing]
        subject = tuple(sorted(condition.subject for condition in permitting))
        matchers = [self._permitting(condition) for condition in permitting]
        return PermittedMatches(matcher, PermittedRows(matchers, subject))

    def _permitting(self, condition: FilledCondition) -> MatchSource:
        """Return the rows that a condition of a policy permits."""
        subject = condition.predicate_id, condition.stream_id, condition.where
        matcher = self._matcher(*subject)
        return matches_at(matcher, condition.when, condition.now) if condition.moves else matcher

    def _matcher(
        self,
        predicate_id: int,
        stream_id: int,
        where: Expression,
        neighbours: Neighbours | None = None,
    ) -> Matcher:
        caches = self.epoch, self.maker.matches, self.maker.match_files
        return Matcher(predicate_id, stream_id, where, *caches, self.work, neighbours=neighbours)

    def of_combinations(self, plan: Plan, composite: CompositePlan) -> CombinationMatcher:
        subject = composite.predicate_id, composite.composite_id, composite.where
        legs = [plan.legs[place] for place in composite.places]
        caches = self.epoch, self.maker.matches, self.maker.match_files
        return CombinationMatcher(*subject, *caches, self.work, legs=legs)


@dataclass(frozen=True, slots=True)
class _StoredPoints:
    """Finds refresh points in the files of a store."""

    finder: CrossingFinder
    matchers: PlanMatchers

    def position(self, instant: int, crossings: Iterable[Crossing]) -> int | None:
        return self.finder.position(instant, crossings)

    def reached_at(self, stamp: int, crossing: Crossing, oldest: int) -> int | None:
        return self.finder.reached_at(stamp, crossing, oldest)

    def matcher(self, triggers: Triggers) -> MatchSource:
        return self.matchers.of_triggers(triggers)
