"""The maker of answers: the caches that answers share, and the way from a question to an answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from psoup.answers.caches import Memo, UnregisteredIds
from psoup.answers.crossings import CrossingFinder
from psoup.answers.epoch_files import EpochView
from psoup.answers.evaluate import Answer, evaluate, evaluate_at_once
from psoup.answers.implied import ImpliedFinder
from psoup.answers.join_limits import JoinLimits
from psoup.answers.matching import Matcher, MatchFileCache, Work
from psoup.answers.plan import LegPlan, Plan
from psoup.answers.planning import make_plan
from psoup.answers.question import Question
from psoup.answers.refreshing import known_at, point_by_rows, refreshed, with_legs_refreshed
from psoup.answers.view import View
from psoup.store import Store
from results.match_cache import MatchCache

# What an entry of the memo takes beside its value.
_MEMO_BYTES = 400


class AnswerMaker:
    """Makes answers over one store. Thread-safe but for `plan`, which is for the thread that
    changes the replica.

    `memory` is the budget that the caches have a quarter of; `compute_rows` bounds the rows one
    answer may match by itself, `joins` what it may take to join its legs.
    """

    def __init__(
        self,
        store: Store,
        memory: int = 64 << 20,
        compute_rows: int = 20_000_000,
        joins: JoinLimits | None = None,
    ) -> None:
        self.compute_rows = compute_rows
        self.join_limits = joins or JoinLimits()
        self.known = MatchCache(memory // 16)
        root, is_newest = store.table("matches").root, store.epochs.is_newest
        self.stored = MatchFileCache(root, memory // 8, is_newest)
        self.memo: Memo = Memo(memory // 16, _MEMO_BYTES)
        self.unregistered = UnregisteredIds()
        self.implied = ImpliedFinder()
        self._heartbeats = store.table("reached").root

    @property
    def used(self) -> int:
        """The bytes the caches hold."""
        return self.known.used + self.memo.used + self.stored.used

    def answer(self, view: View, question: Question) -> Answer:
        """The answer to a question. Raises what planning raises, FileNotFoundError, TooMuchWork."""
        work = self.work()
        plan = self.settle(self.plan(view, question), work)
        return self.evaluate(plan, work)

    def plan(self, view: View, question: Question) -> Plan:
        """Raises what `make_plan` raises."""
        return self.implied.prepared(make_plan(view, question, self.unregistered), view.state)

    def work(self, *, wait_for_engine: bool = False) -> Work:
        """The bound on what one answer may compute."""
        return Work(None if wait_for_engine else self.compute_rows)

    def settle(self, plan: Plan, work: Work) -> Plan:
        """The plan as of its last refresh point, where rows or events tell which that is. It reads
        files."""
        triggers, crossings = plan.triggers, plan.crossings
        if crossings is not None:
            finder = CrossingFinder(self._heartbeats, plan.epoch.reached, self.memo)
            known = known_at(plan, finder.position(crossings))
            return with_legs_refreshed(replace(known, crossings=None))
        if triggers is None or plan.now is None:
            return plan
        subject = triggers.predicate_id, triggers.stream_id, triggers.where
        matcher = Matcher(*subject, plan.epoch, self.known, self.stored, work)
        return with_legs_refreshed(refreshed(plan, point_by_rows(plan, triggers, matcher)))

    def matchers(self, plan: Plan, work: Work) -> PlanMatchers:
        """The matchers that tell which rows match the predicates of a plan's legs."""
        return PlanMatchers(self, plan.epoch, work)

    def evaluate(self, plan: Plan, work: Work) -> Answer:
        """The answer of a settled plan. Raises FileNotFoundError, TooMuchWork, Uncovered."""
        return evaluate(plan, self.matchers(plan, work), self.memo, self.join_limits)

    def evaluate_at_once(self, plan: Plan, work: Work) -> Answer | None:
        """The answer of a plan where making it takes less than a millisecond or so; else None."""
        return evaluate_at_once(plan, self.matchers(plan, work), self.memo)


@dataclass(frozen=True, slots=True)
class PlanMatchers:
    """The matchers of a plan's legs, with the caches of a maker."""

    maker: AnswerMaker
    epoch: EpochView
    work: Work

    def of(self, leg: LegPlan) -> Matcher:
        subject = leg.predicate_id, leg.stream_id, leg.leg.where
        maker = self.maker
        return Matcher(*subject, self.epoch, maker.known, maker.stored, self.work, leg.neighbours)
