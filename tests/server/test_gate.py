"""Places at the gate: one tenant leaves some for others."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from psoup.errors import Overloaded
from psoup.server.sharing.gate import Gate


def entered(gate: Gate, stack: ExitStack, tenant: str) -> int:
    """How many calls of a tenant get in before one is refused."""
    count = 0
    while True:
        try:
            stack.enter_context(gate.entered(tenant))
        except Overloaded:
            return count
        count += 1


def test_a_quarter_is_for_those_who_have_few() -> None:
    gate = Gate(40, "calls", "--calls", 1)
    with ExitStack() as stack:
        assert entered(gate, stack, "flood") == 30
        assert entered(gate, stack, "quiet") == 5
        assert entered(gate, stack, "another") == 3
        assert entered(gate, stack, "flood") == 0
        with pytest.raises(Overloaded), ExitStack() as more:
            for _ in range(3):
                more.enter_context(gate.entered(""))
    with ExitStack() as stack:
        assert entered(gate, stack, "") == 40, "whose tenant is not known counts for nobody"


def test_places_of_each_party_and_of_all() -> None:
    gate = Gate(10, "calls without a credential", "", 10, limit_per_party=4)
    with ExitStack() as stack:
        assert entered(gate, stack, "one connection") == 4
        assert entered(gate, stack, "another") == 4
        assert entered(gate, stack, "a third") == 2
        assert entered(gate, stack, "a fourth") == 0
    with ExitStack() as stack:
        assert entered(gate, stack, "one connection") == 4, "places are given back"


def test_a_refusal_keeps_no_traceback_of_those_before() -> None:
    gate, lengths = Gate(0, "calls", "--calls", 1), set()
    for _ in range(3):
        with pytest.raises(Overloaded) as refused, gate.entered("a"):
            pass
        lengths.add(len(refused.traceback))
    assert len(lengths) == 1
