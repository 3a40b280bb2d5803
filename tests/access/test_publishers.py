"""Publishers belong to an owner: another owner's sequences can be neither used nor probed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration

from psoup.v1 import psoup_pb2 as pb
from tests.support.server.callers import NamedCaller, open_server
from tests.support.server.process import detail, ipc


@pytest.fixture
async def stub(tmp_path: Path) -> AsyncIterator[Any]:
    async with open_server(tmp_path / "store") as (_, stub):
        for tenant in ("shop", "bank"):
            boss = NamedCaller(stub, tenant, "boss", ("administrator",))
            await boss.define("CREATE STREAM s (a BIGINT)")
        yield stub


def sender(stub: Any, owner: str, tenant: str = "shop") -> NamedCaller:
    return NamedCaller(stub, tenant, owner, ("publisher",))


def batch(name: str, sequence: int, value: int = 0, **fields: Any) -> pb.PublishRequest:
    rows = ipc(pa.table({"a": [value]}))
    return pb.PublishRequest(stream="s", publisher=name, sequence=sequence, arrow=rows, **fields)


async def listed(caller: NamedCaller, **fields: Any) -> list[tuple[str, str, int]]:
    """Return owner, name and last sequence of what a caller is shown, read in pages of two."""
    publishers, token = [], ""
    while True:
        request = pb.ListPublishersRequest(page_size=2, page_token=token, **fields)
        page = await caller.only("ListPublishers", request)
        publishers += [
            (publisher.owner, publisher.name, publisher.sequence) for publisher in page.publishers
        ]
        assert all(
            publisher.position and publisher.published_at.seconds for publisher in page.publishers
        )
        token = page.next_page_token
        if not token:
            return publishers


async def refusal(caller: NamedCaller, rpc: str, request: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as problem:
        await caller.call(rpc, request)
    return problem.value.code(), detail(problem.value).reason


async def test_a_name_of_another_owner_is_another_publisher(stub: Any) -> None:
    alice, bob, of_bank = sender(stub, "alice"), sender(stub, "bob"), sender(stub, "alice", "bank")
    for sequence in (1, 2):
        assert not (await alice.only("Publish", batch("desk", sequence, 5))).duplicate
    for guess in (5, 6):
        code, reason = await refusal(bob, "Publish", batch("desk", 2, guess))
        assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "SEQUENCE_GAP")
    for caller in (bob, of_bank):
        assert not (await caller.only("Publish", batch("desk", 1, 5))).duplicate
    await bob.call("Publish", batch("desk", 2))
    await bob.call("Publish", batch("desk", 3))
    assert not (await alice.only("Publish", batch("desk", 3, 7))).duplicate
    assert (await alice.only("Publish", batch("desk", 2, 5))).duplicate


async def test_only_those_who_administer_publish_for_another_owner(stub: Any) -> None:
    await sender(stub, "alice").call("Publish", batch("desk", 1, 1))
    for rpc in ("Publish", "PublishStream"):
        code, _ = await refusal(sender(stub, "bob"), rpc, batch("desk", 1, 1, owner="alice"))
        assert code is grpc.StatusCode.PERMISSION_DENIED
    boss = NamedCaller(stub, "shop", "boss", ("administrator",))
    assert (await boss.only("Publish", batch("desk", 1, 1, owner="alice"))).duplicate
    assert not (await boss.only("Publish", batch("desk", 2, 2, owner="alice"))).duplicate


async def test_listing_and_forgetting(stub: Any) -> None:
    alice, bob = sender(stub, "alice"), sender(stub, "bob")
    for caller in (alice, bob):
        for name in ("a", "b1", "b2"):
            await caller.call("Publish", batch(name, 1, 1))
    await alice.call("Publish", batch("b2", 2, 2))
    boss = NamedCaller(stub, "shop", "boss", ("administrator",))
    assert await listed(alice) == [("alice", "a", 1), ("alice", "b1", 1), ("alice", "b2", 2)]
    assert await listed(bob, prefix="b") == [("bob", "b1", 1), ("bob", "b2", 1)]
    assert len(await listed(boss)) == 6 and len(await listed(boss, owner="bob")) == 3
    assert await listed(NamedCaller(stub, "bank", "boss", ("administrator",))) == []
    code, _ = await refusal(bob, "ListPublishers", pb.ListPublishersRequest(owner="alice"))
    assert code is grpc.StatusCode.PERMISSION_DENIED

    forget = pb.ForgetPublishersRequest(owner="alice", names=["a", "b2"])
    assert (await refusal(bob, "ForgetPublishers", forget))[1] == "PERMISSION_DENIED"
    unknown = pb.ForgetPublishersRequest(names=["a", "none"])
    assert (await refusal(alice, "ForgetPublishers", unknown))[1] == "UNKNOWN_PUBLISHER"
    await boss.call("ForgetPublishers", forget)
    assert await listed(alice) == [("alice", "b1", 1)]
    assert not (await alice.only("Publish", batch("b2", 1, 3))).duplicate, "it begins again"
    assert (await alice.only("Publish", batch("b2", 1, 3))).duplicate
    assert (await refusal(alice, "Publish", batch("b2", 2 + 1)))[1] == "SEQUENCE_GAP"
    audit = await boss.only("Audit", pb.AuditRequest())
    records = [
        (record.actor, record.action, record.object, record.detail) for record in audit.records
    ]
    assert ("boss", "forget publisher", "b2", "owner alice") in records


@pytest.mark.parametrize("names", [[], [str(number) for number in range(1001)], ["x" * 300]])
async def test_what_can_t_be_forgotten(stub: Any, names: list[str]) -> None:
    request = pb.ForgetPublishersRequest(names=names)
    code, _ = await refusal(sender(stub, "alice"), "ForgetPublishers", request)
    assert code is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("token", ["x", "x.y", "-1.ab", "9" * 5000 + ".", "."])
async def test_tokens_of_pages_that_are_none(stub: Any, token: str) -> None:
    request = pb.ListPublishersRequest(page_token=token)
    code, _ = await refusal(sender(stub, "alice"), "ListPublishers", request)
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def records(caller: NamedCaller) -> dict[str, tuple[bytes, int, int]]:
    """Return the mark, the rows and the lease of each publisher that a caller is shown."""
    page = await caller.only("ListPublishers", pb.ListPublishersRequest())
    return {
        publisher.name: (publisher.mark, publisher.row_count, publisher.lease.seconds)
        for publisher in page.publishers
    }


async def test_a_mark_moves_with_its_batch(stub: Any) -> None:
    alice, bob = sender(stub, "alice"), sender(stub, "bob")
    await alice.call("Publish", batch("p", 1, mark=b"offset 1"))
    await alice.call("Publish", batch("p", 2, mark=b"offset 2\x00\xff"))
    assert await records(alice) == {"p": (b"offset 2\x00\xff", 2, 0)}
    assert await records(bob) == {}, "marks of others are not shown"
    # A repeat with another mark is a repeat, and the first mark stays.
    (repeated,) = await alice.call("Publish", batch("p", 2, mark=b"other"))
    assert repeated.duplicate
    nothing = ipc(pa.table({"a": pa.array([], pa.int64())}))
    empty = pb.PublishRequest(stream="s", publisher="p", sequence=3, arrow=nothing, mark=b"3")
    await alice.call("Publish", empty)
    assert await records(alice) == {"p": (b"3", 2, 0)}
    await alice.call("Publish", batch("p", 4, publisher_lease=Duration(seconds=60)))
    assert await records(alice) == {"p": (b"", 3, 60)}, "the last batch counts"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (batch("p", 1, mark=bytes(4097)), "mark"),
        (batch("", 0, mark=b"m"), "mark"),
        (batch("", 0, publisher_lease=Duration(seconds=60)), "publisher_lease"),
        (batch("p", 1, publisher_lease=Duration()), "publisher_lease"),
    ],
)
async def test_a_wrong_mark_or_lease_is_refused(
    stub: Any, wrong: pb.PublishRequest, field: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as problem:
        await sender(stub, "alice").call("Publish", wrong)
    assert problem.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert detail(problem.value).field == field
