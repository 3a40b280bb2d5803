"""Proposals wait in turns by tenant, and in their order within a tenant and a call."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from psoup.write.draft import Chain, CommitDraft
from psoup.write.line import GroupLimits, ProposalLine


@dataclass(frozen=True)
class Small:
    tenant: str
    number: int
    nbytes: int = 1
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> int:
        return self.number


@dataclass
class Waiting:
    proposal: Small


async def drained(line: ProposalLine[Any], count: int) -> list[list[Small]]:
    groups: list[list[Small]] = []
    while sum(map(len, groups)) < count:
        groups.append([waiting.proposal for waiting in await line.group()])
        line.done(len(groups[-1]))
    await line.join()
    return groups


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60), st.integers(0, 2))),
    st.integers(1, 20),
    st.integers(1, 100),
)
def test_all_come_out_once_and_in_order(
    specs: list[tuple[str, int, int]], proposals: int, nbytes: int
) -> None:
    chains = [None, Chain(), Chain()]
    line: ProposalLine[Any] = ProposalLine(GroupLimits(proposals, nbytes))
    put = [
        Small(tenant, number, size, chains[chain])
        for number, (tenant, size, chain) in enumerate(specs)
    ]
    for proposal in put:
        line.put(Waiting(proposal))
    groups = asyncio.run(drained(line, len(put)))
    out = [proposal for group in groups for proposal in group]
    assert sorted(proposal.number for proposal in out) == list(range(len(put)))
    for same in (
        *([p.number for p in out if p.tenant == t and not p.chain] for t in "abc"),
        *([p.number for p in out if p.chain is chain] for chain in chains[1:]),
    ):
        assert same == sorted(same)
    for group in groups:
        assert len(group) <= proposals
        assert sum(proposal.nbytes for proposal in group) <= max(nbytes, group[0].nbytes)


def test_one_tenant_s_flood_delays_another_by_a_share() -> None:
    line: ProposalLine[Any] = ProposalLine(GroupLimits(80, 1 << 20))
    for number in range(1000):
        line.put(Waiting(Small("flood", number)))
    line.put(Waiting(Small("quiet", 1000)))
    first, *_ = asyncio.run(drained(line, 1001))
    assert [proposal.tenant for proposal in first] == ["flood"] * 10 + ["quiet"]


def test_a_proposal_larger_than_a_share_is_first_in_the_next_commit() -> None:
    line: ProposalLine[Any] = ProposalLine(GroupLimits(80, 800))
    for number in range(1000):
        line.put(Waiting(Small("flood", number)))
    line.put(Waiting(Small("quiet", 1000, nbytes=500)))
    first, second, *_ = asyncio.run(drained(line, 1001))
    assert {proposal.tenant for proposal in first} == {"flood"}
    assert second[0].tenant == "quiet"


async def test_who_steps_back_goes_with_others_or_after_a_while() -> None:
    waited: list[str] = []

    def steps_back(tenant: str) -> bool:
        waited.append(tenant)
        return tenant == "flood"

    line: ProposalLine[Any] = ProposalLine(GroupLimits(80, 1 << 20), steps_back)
    line.put(Waiting(Small("flood", 0)))
    group = asyncio.create_task(line.group())
    for _ in range(10):
        await asyncio.sleep(0)
    assert waited and not group.done(), "it waits for a commit of another tenant"
    line.put(Waiting(Small("quiet", 1)))
    assert {waiting.proposal.tenant for waiting in await group} == {"flood", "quiet"}
    line.put(Waiting(Small("flood", 2)))
    assert [waiting.proposal.number for waiting in await line.group()] == [2]
