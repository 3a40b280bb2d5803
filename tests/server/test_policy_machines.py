"""Machines with row policies: whatever policies and claims came before, an answer is the naive one
over the rows that are shown, and a copy is after its next sync."""

from __future__ import annotations

import pytest

from tests.server.test_several_machine import SeveralSoup
from tests.server.test_several_sync_machine import SeveralRecharge
from tests.server.test_sync_machine import Recharge
from tests.support.server.policy_world import PolicyWorld, SeveralPolicyWorld
from tests.support.server.sync_world import machine_settings


class PolicySoup(SeveralPolicyWorld, SeveralSoup):
    """Answers over several streams."""


class PolicyRecharge(PolicyWorld, Recharge):
    """Copies of answers over one stream, base rows among them."""


class SeveralPolicyRecharge(SeveralPolicyWorld, SeveralRecharge):
    """Copies of answers over several streams."""


TestPolicySoup = PolicySoup.TestCase
TestPolicySoup.settings = machine_settings(8, 20)
TestPolicyRecharge = PolicyRecharge.TestCase
TestPolicyRecharge.settings = machine_settings(10, 30)
TestSeveralPolicyRecharge = SeveralPolicyRecharge.TestCase
TestSeveralPolicyRecharge.settings = machine_settings(6, 20)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(20))
def test_oracle_policies_for_long(seed: int) -> None:
    PolicySoup().live(seed)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(20))
def test_oracle_copies_under_policies_for_long(seed: int) -> None:
    SeveralPolicyRecharge().live(seed)
