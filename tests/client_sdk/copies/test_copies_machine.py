"""The SDK's copies in a world of two servers: every copy is always some answer, and the naive one.

Lines that break in the middle, ends that get lost, budgets, restarts of client and servers, a
server that lags, damage, registrations that are gone, rows that have passed the retention.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, initialize, multiple, rule

from client_sdk import Client, ConnectionFailed, Copies, Copy, Retry, Synced
from client_sdk._wire.values import from_micros, to_micros
from psoup.v1 import psoup_pb2 as pb
from tests.oracle.copy import Values
from tests.support.client_sdk.damage import flip_in_rows, flip_in_state, lose_row
from tests.support.client_sdk.inside import InsideTransport
from tests.support.server.sync_world import (
    NAMES,
    Asked,
    Question,
    World,
    machine_settings,
    questions,
    row,
)

UNKNOWN = -1

# To which server, to which stream, which rows.
News = tuple[int, str, list[Any]]
news = st.tuples(st.integers(0, 1), st.sampled_from(NAMES), st.lists(row, min_size=1, max_size=8))

# A transfer that was begun is of no use then, and another target is chosen.
NEW_TARGET = frozenset({pb.SYNC_REASON_TARGET_GONE, pb.SYNC_REASON_OTHER_REGISTRATION})


@dataclass
class Kept:
    name: str
    asked: Asked
    target_clock: int = 0
    resumes: set[bytes] = field(default_factory=set)


@dataclass(frozen=True)
class SdkSeen:
    """What `rows` and `state` say."""

    copy: Copy

    @property
    def position(self) -> bytes:
        return self.copy.state.position

    @property
    def now(self) -> int | None:
        now = self.copy.state.now
        return None if now is None else to_micros(now)

    @property
    def slides(self) -> bool:
        return self.copy.state.slides

    @property
    def good_until(self) -> int | None:
        until = self.copy.state.good_until
        return None if until is None else to_micros(until)

    def answer(self, now: int | None) -> list[Values]:
        rows = self.copy.rows(None if now is None else from_micros(now))
        return [tuple(row.values()) for row in rows]


class Offline(World):
    kept = Bundle("kept")

    @initialize(
        target=kept,
        seed=st.integers(0, 2**32),
        in_memory=st.booleans(),
        first=st.lists(questions, min_size=3, max_size=3),
    )
    def open(self, seed: int, in_memory: bool, first: list[Question]) -> MultipleResults[Kept]:  # type: ignore[override]
        super().open(seed=seed)
        self.in_memory = in_memory
        self.own_folder = Path(tempfile.mkdtemp(prefix="psoup-copies-"))
        self.all: dict[str, Kept] = {}
        self.copies = self._open()
        return multiple(*(self._keep(question, 0) for question in first))

    def teardown(self) -> None:
        if hasattr(self, "copies"):
            self.copies.close()
            shutil.rmtree(self.own_folder)
        super().teardown()

    # ---- what the client does

    @rule(target=kept, question=questions, priority=st.integers(0, 3))
    def keep(self, question: Question, priority: int) -> Kept:
        return self._keep(question, priority)

    def _keep(self, question: Question, priority: int) -> Kept:
        asked = self.ask(question, computes=True)
        one = Kept(f"copy{len(self.all)}", asked)
        self.copies.keep(
            one.name,
            asked.text,
            window=asked.window or None,
            base_rows=asked.base_rows,
            priority=priority,
        )
        self.all[one.name] = one
        return one

    @rule()
    def reopen(self) -> None:
        if not self.in_memory:
            self.copies.close()
            self.copies = self._open()

    @rule(
        server=st.integers(0, 1),
        news=st.lists(news, max_size=3),
        asked=st.lists(kept, min_size=1, max_size=3, unique_by=id),
        cuts=st.lists(st.none() | st.integers(0, 9), max_size=4),
        budget=st.sampled_from((None, None, None, 1, 300, 2000)),
        away=st.sampled_from((None, None, 0, 5, 100)),
        one_position=st.booleans(),
        lose_ends=st.integers(0, 5),
    )
    def sync(
        self,
        server: int,
        news: list[News],
        asked: list[Kept],
        cuts: list[int | None],
        budget: int | None,
        away: int | None,
        one_position: bool,
        lose_ends: int,
    ) -> None:
        for place, name, batch in news:
            self.publish(server=place, name=name, batch=batch)
        client = self._client(server)
        line = self.line
        line.cuts, line.lose_ends = cuts, lose_ends == 0
        try:
            synced = self.copies.sync(
                client,
                only=[one.name for one in asked],
                byte_budget=budget,
                one_position=one_position,
                away=None if away is None else timedelta(seconds=away),
            )
        except ConnectionFailed:
            synced = Synced({})
        self._check_all(asked, synced, one_position)
        self._check_nothing_repaired()

    @rule(
        server=st.integers(0, 1),
        news=st.lists(news, max_size=3),
        one=kept,
        budget=st.sampled_from((1, 100, 400)),
    )
    def recharge(self, server: int, news: list[News], one: Kept, budget: int) -> None:
        """Until it is complete, in as many calls as that takes."""
        for place, name, batch in news:
            self.publish(server=place, name=name, batch=batch)
        client = self._client(server)
        for _ in range(1000):
            synced = self.copies.sync(client, only=[one.name], byte_budget=budget)
            self._check_nothing_repaired()
            if synced.complete:
                return self._check_all([one], synced, False)
            assert synced[one.name].status == "incomplete"
        raise AssertionError("it never ends")

    @rule(
        server=st.integers(0, 1),
        one=kept,
        cuts=st.lists(st.integers(0, 6), max_size=2),
        kind=st.sampled_from(
            ("row", "row", "lost", "state", "declaration", "spare", "stage", "sound")
        ),
    )
    def damage(self, server: int, one: Kept, cuts: list[int | None], kind: str) -> None:
        """The next sync puts it right; it finds by itself what is not a value of a row."""
        if kind == "row":
            flip_in_rows(self.copies, one.name, self.chance)
            self.copies.verify([one.name])
        elif kind == "lost":
            lose_row(self.copies, one.name, self.chance)
        else:
            flip_in_state(self.copies, one.name, self.chance, kind)
        client = self._client(server)
        self.line.cuts = cuts
        synced = self.copies.sync(client, only=[one.name])
        assert synced.complete
        self._check_all([one], synced, False)

    @rule(server=st.integers(0, 1), one=kept)
    def unregister(self, server: int, one: Kept) -> None:
        """It is registered again by the next sync."""
        handle = self.copies[one.name].handle
        if handle is None:
            return
        client = self._client(server)
        client.unregister(handle)
        synced = self.copies.sync(client, only=[one.name])
        assert synced[one.name].whole and self.copies[one.name].handle != handle
        self._check_all([one], synced, False)

    @rule(server=st.integers(0, 1), one=kept)
    def nothing_new(self, server: int, one: Kept) -> None:
        """A sync right after another is one call of few bytes."""
        self.run(self.cores[server].follower.catch_up())
        client = self._client(server)
        for _ in range(3):
            self.line.calls.clear()
            self.line.bytes_sent = 0
            synced = self.copies.sync(client, only=[one.name])
        assert synced[one.name].status == "unchanged"
        assert [method for method, _ in self.line.calls] == ["Sync"]
        assert self.line.bytes_sent <= 200
        self._check_all([one], synced, False)

    # ---- checks

    def _check_all(self, asked: list[Kept], synced: Synced, one_position: bool) -> None:
        for one in asked:
            change = synced.get(one.name)
            ended = change is not None and change.status in ("changed", "unchanged")
            if ended:
                one.asked.clock = UNKNOWN if one_position else one.target_clock
            self._check_one(one)
        if one_position and synced.complete and len(synced):
            assert len({self.copies[one.name].state.position for one in asked}) == 1

    def _check_nothing_repaired(self) -> None:
        """Repair would hide it where a change was told or taken wrongly."""
        for method, request in self.line.calls:
            for item in request.items if method == "Sync" else ():
                assert not (item.whole or item.HasField("have") or item.HasField("resend"))

    def _check_one(self, one: Kept) -> None:
        copy = self.copies[one.name]
        if not copy.synced:
            return
        stays = one.asked.query.refresh is not None and not one.asked.computes
        if stays and one.asked.clock == UNKNOWN:
            return
        self.check(one.asked, SdkSeen(copy))
        seen = SdkSeen(copy)
        if seen.slides and (seen.good_until is None or self.clock < seen.good_until):
            now = max(self.clock, seen.now or 0)
            assert seen.answer(None) == seen.answer(now)

    def _note(self, item: pb.SyncItem, part: pb.SyncPart) -> None:
        """A refresh point is found out when a target is chosen, and then kept."""
        one = next(one for one in self.all.values() if self._handle(one) == item.handle)
        resumed = item.token in one.resumes
        begun = part.HasField("begin") and not part.begin.continued and not resumed
        gone = part.begin.reason in NEW_TARGET
        if begun or gone:
            one.target_clock = self.clock
        if part.HasField("resume"):
            one.resumes.add(part.resume)

    def _handle(self, one: Kept) -> bytes | None:
        return self.copies[one.name].handle if one.name in self.copies else None

    # ---- means

    def _open(self) -> Copies:
        def clock() -> datetime:
            return from_micros(self.clock)

        if self.in_memory:
            return Copies.in_memory(clock=clock)
        return Copies(self.own_folder / "copies.db", clock=clock)

    def _client(self, server: int) -> Client:
        self.line = InsideTransport(self.cores[server], self.run, self._note)
        return Client(transport=self.line, retry=Retry(attempts=3, first=0.0))


TestOffline = Offline.TestCase
TestOffline.settings = machine_settings(15, 30)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestForLong(Offline.TestCase):  # type: ignore[misc, valid-type]
    """Thousands of runs."""

    settings = machine_settings(2000, 50)
