"""Machines with row policies: whatever policies and claims came before, an answer is the naive one
over the rows that are shown, and a copy is after its next sync."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from psoup.server.core import Core
from psoup.v1 import psoup_pb2 as pb
from tests.oracle.copy import values_in
from tests.server.test_several_machine import SeveralSoup
from tests.server.test_several_sync_machine import SeveralRecharge
from tests.server.test_sync_machine import Recharge, Standing
from tests.support.lengths import short_first
from tests.support.server.guest_world import GuestWorld
from tests.support.server.policy_world import (
    MovingPolicyWorld,
    PolicyWorld,
    SeveralPolicyWorld,
)
from tests.support.server.sync_world import Asked, machine_settings


class PolicySoup(SeveralPolicyWorld, SeveralSoup):
    """Answers over several streams."""


class PolicyRecharge(PolicyWorld, Recharge):
    """Copies of answers over one stream, base rows among them."""


class MovingPolicyRecharge(MovingPolicyWorld, Recharge):
    """Copies of callers from whom policies hide rows until or from an instant."""


class SeveralPolicyRecharge(SeveralPolicyWorld, SeveralRecharge):
    """Copies of answers over several streams."""


class GuestRecharge(GuestWorld, SeveralRecharge):
    """Copies of a caller who may read views, and mostly not the streams behind them."""

    def standing_for(self, server: int, question: Asked) -> Standing:
        standing = super().standing_for(server, question)
        self.texts[standing.handle] = self.without_own_window(question.text)
        return standing

    def replaced(self, server: int, standing: Standing, question: Asked) -> None:
        self.sendable.pop(standing.handle, None)
        self.texts[standing.handle] = self.without_own_window(question.text)
        super().replaced(server, standing, question)

    @rule(server=st.integers(0, 1), standing=Recharge.standing)
    def ask_for_base_rows(self, server: int, standing: Standing) -> None:
        item = pb.SyncItem(handle=standing.handle, base_rows=True)
        self._catch_up()
        first, *_ = super()._parts(self.cores[server], pb.SyncRequest(items=[item]), None)
        if self._is_guarded(standing.handle):
            assert first.refused.detail.reason == "PERMISSION_DENIED"

    def _parts(self, core: Core, request: pb.SyncRequest, most: int | None) -> list[pb.SyncPart]:
        self._catch_up()
        for item in request.items:
            self.note_sendable(core, item.handle)
        parts = super()._parts(core, request, most)
        for part in parts:
            handle = request.items[part.item].handle
            if self._is_guarded(handle):
                assert set(values_in(part)) <= self.sendable[handle], self.texts[handle]
        return parts

    def _check(self, standing: Standing) -> None:
        super()._check(standing)
        if self._is_guarded(standing.handle):
            values = {row.values for row in standing.copy.rows.values()}
            assert values <= self.sendable[standing.handle], "what may not be seen is on the device"

    def _catch_up(self) -> None:
        for core in self.cores:
            self.run(core.follower.catch_up())

    def _is_guarded(self, handle: bytes) -> bool:
        legs = self.cores[0].follower.state.registrations[handle].streams
        names = {self.cores[0].follower.state.streams[stream_id].schema.name for stream_id in legs}
        return self.is_guarded(names)


TestPolicySoup = PolicySoup.TestCase
TestPolicySoup.settings = machine_settings(4, 20)
TestPolicyRecharge = PolicyRecharge.TestCase
TestPolicyRecharge.settings = machine_settings(5, 30)
TestMovingPolicyRecharge = MovingPolicyRecharge.TestCase
TestMovingPolicyRecharge.settings = machine_settings(5, 30)
TestSeveralPolicyRecharge = SeveralPolicyRecharge.TestCase
TestSeveralPolicyRecharge.settings = machine_settings(3, 20)
TestGuestRecharge = GuestRecharge.TestCase
TestGuestRecharge.settings = machine_settings(3, 20)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", short_first(range(20), 6))
def test_oracle_policies_for_long(seed: int) -> None:
    PolicySoup().live(seed)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", short_first(range(20), 6))
def test_oracle_copies_under_policies_for_long(seed: int) -> None:
    SeveralPolicyRecharge().live(seed)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", short_first(range(20), 6))
def test_oracle_copies_through_views_for_long(seed: int) -> None:
    GuestRecharge().live(seed)
