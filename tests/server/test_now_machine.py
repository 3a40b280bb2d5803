"""Copies of queries with NOW in their expressions: each is the naive answer with the instant in the
place of NOW, and later, as long as no new row comes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tests.server.test_policy_machines import PolicyRecharge
from tests.server.test_sync_machine import Recharge
from tests.support.server.sync_world import Asked, Question, World, machine_settings

_DUE = "ts + (a - 3) * INTERVAL '4' SECOND"
INTERVALS = (
    f"{_DUE} < NOW",
    f"{_DUE} >= NOW AND ts < NOW",
    f"{_DUE} - NOW < INTERVAL '5' SECOND",
    f"NOW - INTERVAL '9' SECOND < {_DUE} AND a > 1",
    f"{_DUE} BETWEEN NOW - INTERVAL '6' SECOND AND NOW + INTERVAL '3' SECOND",
    f"{_DUE} = NOW",
)
COMPUTED = (f"({_DUE} < NOW OR b = 'x')", f"{_DUE} <> NOW", f"coalesce({_DUE} > NOW, a IS NULL)")
_LATE = f"CASE WHEN {_DUE} < NOW THEN 'late' ELSE 'early' END"
SELECTS = (
    f"SELECT a, {_LATE} AS state, NOW AS asked FROM {{}} WHERE {{}}",
    f"SELECT {_LATE} AS state, count(*) AS n FROM {{}} WHERE {{}} GROUP BY {_LATE}",
    "SELECT b, max(ts) AS last FROM {} WHERE {} GROUP BY b"
    " HAVING max(ts) < NOW - INTERVAL '4' SECOND",
    f"SELECT a, row_id FROM {{}} WHERE {{}} ORDER BY {_LATE}, row_id DESC",
)


class Asking(World):
    """Asks with conditions on NOW."""

    def ask(self, question: Question, *, computes: bool = False) -> Asked:
        chance = self.chance
        moment = chance.choice((*INTERVALS, *INTERVALS, *COMPUTED))
        if chance.random() < 0.2:
            question = replace(question, select=chance.choice(SELECTS))
        windows = question.window, question.other
        by_time = not any(window.startswith(("ROWS", "BEGIN ROW")) for window in windows)
        slides = by_time and moment in INTERVALS and question.select not in SELECTS
        # Base rows are sent if they come and go by themselves.
        base_rows = question.base_rows and slides and not question.refresh
        where = f"({question.where}) AND {moment}"
        question = replace(question, where=where, base_rows=base_rows)
        return super().ask(question, computes=computes)


class Present(Asking, Recharge):
    """Copies of all who may read everything."""


class PolicyPresent(Asking, PolicyRecharge):
    """Copies of callers whom row policies bind."""


settings = partial(machine_settings, steps=25)

TestPresent = Present.TestCase
TestPresent.settings = settings(examples=10)
TestPolicyPresent = PolicyPresent.TestCase
TestPolicyPresent.settings = settings(examples=5)
