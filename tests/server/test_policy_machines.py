"""Machines with row policies: whatever policies and claims came before, an answer is the naive one
over the rows that are shown, and a copy is after its next sync."""

from __future__ import annotations

from random import Random

import pytest

from tests.server.test_several_machine import SeveralSoup, SeveralStanding
from tests.server.test_several_sync_machine import SeveralRecharge
from tests.server.test_sync_machine import Recharge, Standing
from tests.support.server.policy_world import (
    CLAIMS,
    CONDITIONS,
    PolicyWorld,
    SeveralPolicyWorld,
)
from tests.support.server.sync_world import NAMES, machine_settings


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


def _policies_happen(dice: Random, world: PolicyWorld) -> None:
    match dice.randrange(6):
        case 0:
            world.create_policy(dice.randrange(2), dice.choice(NAMES), dice.choice(CONDITIONS))
        case 1:
            world.drop_policy(dice.randrange(2), dice.randrange(8))
        case 2 | 3:
            world.change_claims({name: dice.choice([*known]) for name, known in CLAIMS.items()})


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(20))
def test_oracle_policies_for_long(seed: int) -> None:
    """Two hundred texts in the life of one store."""
    dice, soup, standing = Random(seed), PolicySoup(), list[SeveralStanding]()
    soup.open(seed, dice.randint(0, 3))
    try:
        for _ in range(50):
            server = dice.randrange(2)
            standing += soup.register(server, dice.getrandbits(32)).values
            soup.happens(dice)
            _policies_happen(dice, soup)
            soup.invoke(server, dice.sample(standing, min(8, len(standing))))
            for one in dice.sample(standing, min(4, len(standing))):
                soup.invoke_with_window(server, one, dice.getrandbits(32))
                soup.invoke_as_of(server, one, dice.randint(-5, 80), dice.random() < 0.5)
    finally:
        soup.teardown()


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(20))
def test_oracle_copies_under_policies_for_long(seed: int) -> None:
    """Copies of two hundred texts in the life of one store."""
    dice, machine, standing = Random(seed), SeveralPolicyRecharge(), list[Standing]()
    machine.open(seed, dice.randint(0, 3))
    try:
        for _ in range(50):
            server = dice.randrange(2)
            standing += machine.register(server, dice.getrandbits(32)).values
            standing = dice.sample(standing, min(12, len(standing)))
            machine.recharge_some(server, standing)
            machine.happens(dice)
            _policies_happen(dice, machine)
            some, budget = dice.sample(standing, min(3, len(standing))), dice.choice((0, 1, 300))
            machine.sync(1 - server, some, dice.randint(0, 12), budget, True, None, False, 1)
            _policies_happen(dice, machine)
            for one in dice.sample(standing, min(2, len(standing))):
                machine.damage(server, one)
                machine.nothing_new(server, one)
    finally:
        machine.teardown()
