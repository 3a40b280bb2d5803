"""The maker of answers: the caches that answers share, and the way from a question to an answer."""

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
from psoup.answers.matching.shown_rows import MatchSource, ShownMatches, ShownRows
from psoup.answers.planning.plan import CompositePlan, LegPlan, Neighbours, Plan, Triggers
from psoup.answers.planning.planner import make_plan
from psoup.answers.planning.policies import RowPolicy
from psoup.answers.planning.question import Question
from psoup.answers.refresh.crossings import Crossing, CrossingFinder
from psoup.answers.refresh.settling import settled
from psoup.answers.replicas.epoch_files import EpochView
from psoup.answers.replicas.view import View
from psoup.store import Store
from querystem.expressions import Expression
from results.match_cache import MatchCache

# What an entry of the memo takes beside its value.
_MEMO_BYTES = 400


class AnswerMaker:
    """Makes answers over one store. Thread-safe but for `plan`, which is for the thread that
    changes the replica.

    `memory` is the budget that the caches have a quarter of; `compute_rows` bounds the rows one
    answer may match by itself, `joins` what it may take to join its legs. `mask` is a secret key of
    MASK_BYTES, for numbers made from values that a caller may not see. If
    `policy_used` is set, it is called for each policy with claims filled in that a plan uses: with
    the ids of policy and predicate, the predicate's key, and the reader.
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
        self.known = MatchCache(memory // 16)
        root, is_newest = store.table("matches").root, store.epochs.is_newest
        self.stored = MatchFileCache(root, memory // 8, is_newest)
        self.memo: Memo = Memo(memory // 16, _MEMO_BYTES)
        self.unregistered = UnregisteredIds()
        self.implied = ImpliedFinder()
        self._mask = mask
        self._heartbeats = store.table("reached").root
        self.policy_used: Callable[[int, int, str, Principal], None] | None = None

    @property
    def used(self) -> int:
        """The bytes the caches hold."""
        return self.known.used + self.memo.used + self.stored.used

    def answer(self, view: View, question: Question) -> Answer:
        """The answer to a question. Raises what planning raises, FileNotFoundError, TooMuchWork."""
        plan = self.plan(view, question)
        work = self.work(bound=plan.bound)
        return self.evaluate(self.settle(plan, work), work)

    def plan(self, view: View, question: Question) -> Plan:
        """Raises what `make_plan` raises."""
        plan = make_plan(view, question, self.unregistered, self.memo)
        if plan.permission and self.policy_used is not None:
            for one in plan.conditions:
                self.policy_used(one.policy_id, one.predicate_id, one.key, question.reader)
        if plan.unread:
            plan = replace(plan, mask=self._mask)
        return self.implied.prepared(plan, view.state)

    def work(self, *, wait_for_engine: bool = False, bound: bool = False) -> Work:
        """The bound on what one answer may compute, for somebody whom policies bind or not."""
        return Work(None if wait_for_engine else self.compute_rows, bound=bound)

    def settle(self, plan: Plan, work: Work) -> Plan:
        """The plan as of its last refresh points, where rows or events tell which they are. It
        reads files."""
        if not plan.unsettled:
            return plan
        finder = CrossingFinder(self._heartbeats, plan.epoch.reached, self.memo)
        return settled(plan, _StoredPoints(finder, self.matchers(plan, work)))

    def matchers(self, plan: Plan, work: Work) -> PlanMatchers:
        """The matchers that tell which rows match the predicates of a plan's legs."""
        return PlanMatchers(self, plan.epoch, work)

    def evaluate(self, plan: Plan, work: Work) -> Answer:
        """The answer of a settled plan. Raises FileNotFoundError, TooMuchWork, Uncovered."""
        return evaluate(plan, self.matchers(plan, work), self.memo, self.join_limits)

    def evaluate_in_chunks(self, plan: Plan, work: Work, chunk_bytes: int) -> Answer | ChosenRows:
        """Return the answer of a settled plan, or the ids of its rows if those are many. Raises
        what `evaluate` raises."""
        matchers = self.matchers(plan, work)
        return evaluate_in_chunks(plan, matchers, self.memo, self.join_limits, chunk_bytes)

    def evaluate_at_once(self, plan: Plan, work: Work) -> Answer | None:
        """The answer of a plan where making it takes less than a millisecond or so; else None."""
        return evaluate_at_once(plan, self.matchers(plan, work), self.memo)


@dataclass(frozen=True, slots=True)
class PlanMatchers:
    """The matchers of a plan's legs, with the caches of a maker."""

    maker: AnswerMaker
    epoch: EpochView
    work: Work

    def of(self, leg: LegPlan) -> MatchSource:
        subject = leg.predicate_id, leg.stream_id, leg.leg.where
        return self._shown(self._matcher(*subject, leg.neighbours), leg.policy)

    def of_triggers(self, triggers: Triggers) -> MatchSource:
        subject = triggers.predicate_id, triggers.stream_id, triggers.where
        return self._shown(self._matcher(*subject), triggers.policy)

    def _shown(self, matcher: Matcher, policy: RowPolicy) -> MatchSource:
        """The matches among the rows that a policy shows."""
        if policy is None:
            return matcher
        conditions = [one for one in policy if not one.is_constant]
        shown = [self._matcher(one.predicate_id, one.stream_id, one.where) for one in conditions]
        return ShownMatches(matcher, ShownRows(shown))

    def _matcher(
        self,
        predicate_id: int,
        stream_id: int,
        where: Expression,
        neighbours: Neighbours | None = None,
    ) -> Matcher:
        caches = self.epoch, self.maker.known, self.maker.stored
        return Matcher(predicate_id, stream_id, where, *caches, self.work, neighbours=neighbours)

    def of_combinations(self, plan: Plan, composite: CompositePlan) -> CombinationMatcher:
        subject = composite.predicate_id, composite.composite_id, composite.where
        legs = [plan.legs[place] for place in composite.places]
        caches = self.epoch, self.maker.known, self.maker.stored
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
