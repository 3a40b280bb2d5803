"""A world of machines whose caller may read views only, and policies bind the caller too.

Whatever is sent, shown by a copy or not, must be in an answer that Ask has given this caller since
permission last changed, or be kept back by a window of the caller's own query.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any, TypeVar

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import rule

from psoup.access.actions import Action, may
from psoup.access.principal import ClaimValue, Principal
from psoup.server.calls.define import define
from psoup.server.calls.invoke import ask
from psoup.server.core import Core
from psoup.v1 import psoup_pb2 as pb
from querystem.language import Named, bind_query
from tests.oracle.copy import Values
from tests.support.server.callers import acting_as, new_call
from tests.support.server.policy_world import SeveralPolicyWorld
from tests.support.server.several_world import Mixed, SeveralAsked
from tests.support.server.sync_world import CONDITIONS, NAMES, WINDOWS

T = TypeVar("T")

BOSS = Principal("main", "main", roles=frozenset({"administrator"}))
# Windows that a guest brings: only those over views without one.
OWN_WINDOWS = (
    "",
    "RANGE 20 SECONDS",
    "BEGIN NOW - 30 SECONDS END NOW - 3 SECONDS",
    "RANGE 20 SECONDS SLIDE 7 SECONDS",
)
# What a guest asks of one view, and of two.
OF_ONE = (
    "SELECT a, b FROM {}",
    "SELECT a FROM {} WHERE a > 3",
    "SELECT count(*) AS n, sum(a) AS total FROM {}",
    "SELECT b, count(*) AS n FROM {} GROUP BY b",
    "SELECT DISTINCT b FROM {}",
)
OF_TWO = (
    "SELECT x.a, y.b FROM {} x JOIN {} y ON x.a = y.a",
    "SELECT a, b FROM {} UNION ALL SELECT a, b FROM {}",
    "SELECT x.a, y.b FROM {} x LEFT JOIN {} y ON x.b = y.b",
)
# Streams whose times can be joined.
TOGETHER = (("event", "latest"), ("arrival", "kept", "spot"))


class GuestWorld(SeveralPolicyWorld):
    """Mixed in before a machine over copies of several streams."""

    def opened(self) -> None:
        """Each stream has a view with a window and one without; two streams have one together."""
        self.acting: Principal | None = None
        self.texts: dict[bytes, str] = {}
        self.sendable: dict[bytes, set[Values]] = defaultdict(set)
        super().opened()
        for name in NAMES:
            where = self.chance.choice(CONDITIONS)
            self._define(f"CREATE VIEW plain_{name} AS SELECT a, b FROM {name} WHERE {where}")
            text = f"SELECT a, b FROM {name} WHERE {where} {self._window(name)}"
            self._define(f"CREATE VIEW late_{name} AS {text}")
        for first, second in (("event", "latest"), ("arrival", "spot")):
            text = (
                f"SELECT x.a, y.b FROM {first} x WINDOW({self._window(first)}) "
                f"JOIN {second} y WINDOW({self._window(second)}) ON x.b = y.b"
            )
            self._define(f"CREATE VIEW both_{first} AS {text}")
        for view in self.cores[0].follower.state.views.values():
            self._define(f"GRANT read, register ON {view.definition.name} TO ROLE guest")

    def _window(self, name: str) -> str:
        window = self.chance.choice(WINDOWS)
        keyed = self.tables[name].schema.key
        return window.split(" SLIDE")[0] if keyed and "SLIDE" in window else window

    # ---- who does what

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        guest = Principal("main", "main", frozenset({"guest"}), getattr(self, "claims", {}))
        with acting_as(getattr(self, "acting", None) or guest):
            return self.loop.run_until_complete(work)

    def publish(self, server: int, name: str, batch: list[Any]) -> None:
        self._as_boss(super().publish, server, name, batch)

    def heartbeat(self, server: int, name: str, seconds: int) -> None:
        self._as_boss(super().heartbeat, server, name, seconds)

    def _as_boss(self, work: Any, *arguments: Any) -> None:
        self.acting = BOSS
        try:
            work(*arguments)
        finally:
            self.acting = None

    def _define(self, sql: str) -> None:
        self._as_boss(self._run_statement, sql)
        for core in self.cores:
            self.run(core.follower.catch_up())

    def _run_statement(self, sql: str) -> None:
        core = self.cores[0]

        async def run() -> None:
            await define(core, new_call(), pb.DefineRequest(sql=sql))

        self.run(run())

    # ---- what the guest may see

    @rule(name=st.sampled_from(NAMES), read=st.booleans())
    def look_behind(self, name: str, read: bool) -> None:
        """The stream behind views may be read, or no longer."""
        if read is not self.is_guarded({name}):
            return
        verb = f"GRANT read ON {name} TO" if read else f"REVOKE read ON {name} FROM"
        self._define(f"{verb} ROLE guest")
        self.sendable.clear()

    def happens(self, dice: random.Random) -> None:
        """Something happens, and at times to what the guest may read."""
        super().happens(dice)
        if not dice.randrange(4):
            self.look_behind(dice.choice(NAMES), dice.random() < 0.3)

    def create_policy(self, server: int, stream: str, condition: str) -> None:
        super().create_policy(server, stream, condition)
        self.sendable.clear()

    def drop_policy(self, server: int, number: int) -> None:
        super().drop_policy(server, number)
        self.sendable.clear()

    def change_claims(self, values: dict[str, ClaimValue]) -> None:
        super().change_claims(values)
        self.sendable.clear()

    def note_sendable(self, core: Core, handle: bytes) -> None:
        """Note what Ask shows now of all that the windows of the guest's own query keep back."""
        text = self.texts[handle]
        request = pb.AskRequest(sql=text, encoding=pb.ENCODING_ARROW)

        async def collect() -> list[Any]:
            return [message async for message in ask(core, new_call(), request)]

        parts = [
            message if isinstance(message, bytes) else message.SerializeToString()
            for message in self.run(collect())
        ]
        content = b"".join(pb.InvokeResponse.FromString(part).arrow for part in parts)
        rows = pa.ipc.open_stream(content).read_all().to_pylist()
        self.sendable[handle] |= {tuple(row.values()) for row in rows}

    def is_guarded(self, query_streams: set[str]) -> bool:
        """Return whether a view keeps some of the streams from the guest."""
        state = self.cores[0].follower.state
        guest = Principal("main", "main", frozenset({"guest"}))
        ids = [state.stream_names["main", name] for name in query_streams]
        return any(not may(state, guest, Action.READ, stream_id) for stream_id in ids)

    # ---- what the guest asks

    def write(self, seed: int) -> list[SeveralAsked | Mixed]:
        chance = random.Random(seed)
        return [self._of_views(chance) for _ in range(3)]

    def _of_views(self, chance: random.Random) -> SeveralAsked:
        names = chance.choice(TOGETHER)
        views = [f"{chance.choice(('late', 'plain'))}_{chance.choice(names)}" for _ in range(2)]
        if chance.random() < 0.2:
            views[0] = f"both_{names[0]}"
        select = chance.choice(OF_ONE * 2 + OF_TWO)
        text = select.format(*views)
        if select in OF_ONE and views[0].startswith("plain"):
            text += f" {chance.choice(OWN_WINDOWS)}"
        state = self.cores[0].follower.state
        named: dict[str, Named] = {
            view.definition.name: view.definition for view in state.views.values()
        }
        named |= {name: table.schema for name, table in self.tables.items()}
        return SeveralAsked(text, bind_query(text, named.get), ordered=False)

    @staticmethod
    def without_own_window(text: str) -> str:
        """Return the text of a guest's query without the window that the guest gave it. Results of
        rows depend on their window: those are shown as they are."""
        if "count(" in text or "DISTINCT" in text:
            return text
        for window in sorted(OWN_WINDOWS, key=len, reverse=True):
            if window and text.endswith(f" {window}"):
                return text.removesuffix(f" {window}")
        return text
