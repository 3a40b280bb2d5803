"""Two servers of one store that must answer alike: one keeps what it computed, one forgets it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from psoup.access.principal import Principal
from psoup.answers.caches import Memo
from psoup.answers.difference.nothing_new import nothing_new
from psoup.server.call import Call
from psoup.server.calls import transfer
from psoup.server.core import Core
from psoup.server.services import HANDLERS
from psoup.server.settings import Settings
from psoup.server.status_codes import FAMILIES
from psoup.server.wire.arrow import serialize
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from tests.support.server.epochs import HandMadeEngine

START = 1_700_000_000_000_000


class NoMemo(Memo):
    """A memo that forgets everything at once."""

    def get(self, key: Hashable) -> None:
        return None

    def put(self, key: Hashable, value: object, nbytes: int = 1) -> None:
        pass


@dataclass
class Twins:
    """The two servers, an engine beside them, and the clock of all, in microseconds UTC."""

    keeping: Core
    forgetting: Core
    engine: HandMadeEngine
    clock: list[int]
    # How often the server that keeps has found that a sync has nothing new.
    quick_syncs: int = field(default=0)

    async def write(self, rpc: str, caller: Principal, request: Any) -> Any:
        """Return what a writing call gives, or its error, after both servers have applied it."""
        try:
            return await HANDLERS[rpc](self.keeping, Call(caller), request)
        except FAMILIES as error:
            return error
        finally:
            await self.meet()

    async def meet(self) -> None:
        for core in (self.keeping, self.forgetting):
            await core.follower.catch_up()

    async def step(self) -> None:
        """Let the engine consume the log, and both servers see its epoch."""
        self.engine.step()
        for core in (self.keeping, self.forgetting):
            await core.follower.refresh()

    async def ask(self, rpc: str, caller: Principal, request: Any) -> list[Any]:
        """Return what both servers answer, which must be the same; or the text of their error."""
        mine, other = [
            await _outcome(core, rpc, caller, request) for core in (self.keeping, self.forgetting)
        ]
        assert mine == other, (rpc, request)
        return mine


@asynccontextmanager
async def twins(folder: Path) -> AsyncIterator[Twins]:
    clock = [START]
    store = Store.open(folder / "store", create=True, sync=False)
    cores = [Core(store, Settings(folder / "store"), lambda: clock[0]) for _ in range(2)]
    pair = Twins(cores[0], cores[1], HandMadeEngine(store), clock)
    pair.forgetting.maker.memo = NoMemo(0)

    def at_once(maker: Any, *arguments: Any) -> Any:
        if maker is pair.forgetting.maker:
            return None
        difference = nothing_new(maker, *arguments)
        pair.quick_syncs += difference is not None
        return difference

    with mock.patch.object(transfer, "nothing_new", at_once):
        for core in cores:
            await core.start()
            # Both are asked at one position: no call may append anything.
            core.maker.policy_used = None
            setattr(core.interest, "request", _ignore)  # noqa: B010 - mypy forbids an assignment
            setattr(core.leases, "contact", _ignore)  # noqa: B010
        try:
            yield pair
        finally:
            for core in cores:
                await core.stop()


def _ignore(*_: object) -> None:
    pass


async def _outcome(core: Core, rpc: str, caller: Principal, request: Any) -> list[Any]:
    try:
        messages = [message async for message in HANDLERS[rpc](core, Call(caller), request)]
    except FAMILIES as error:
        return [type(error), str(error)]
    if rpc == "Sync":
        return messages
    answers = [pb.InvokeResponse.FromString(serialize(message)) for message in messages]
    # How long it took, and what was cached before, may differ.
    for field_name in ("elapsed", "computed_rows", "joined_pairs"):
        answers[0].header.ClearField(field_name)
    return answers
