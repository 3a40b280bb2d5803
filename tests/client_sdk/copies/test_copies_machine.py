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
    kept_copies = Bundle("kept_copies")

    @initialize(
        target=kept_copies,
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

    @rule(target=kept_copies, question=questions, priority=st.integers(0, 3))
    def keep(self, question: Question, priority: int) -> Kept:
        return self._keep(question, priority)

    def _keep(self, question: Question, priority: int) -> Kept:
        answered = self.ask(question, computes=True)
        offline_copy = Kept(f"copy{len(self.all)}", answered)
        self.copies.keep(
            offline_copy.name,
            answered.text,
            window=answered.window or None,
            base_rows=answered.base_rows,
            priority=priority,
        )
        self.all[offline_copy.name] = offline_copy
        return offline_copy

    @rule()
    def reopen(self) -> None:
        if not self.in_memory:
            self.copies.close()
            self.copies = self._open()

    @rule(
        server=st.integers(0, 1),
        news=st.lists(news, max_size=3),
        affected_copies=st.lists(kept_copies, min_size=1, max_size=3, unique_by=id),
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
        affected_copies: list[Kept],
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
                only=[offline_copy.name for offline_copy in affected_copies],
                byte_budget=budget,
                one_position=one_position,
                away=None if away is None else timedelta(seconds=away),
            )
        except ConnectionFailed:
            synced = Synced({})
        self._check_all(affected_copies, synced, one_position)
        self._check_nothing_repaired()

    @rule(
        server=st.integers(0, 1),
        news=st.lists(news, max_size=3),
        offline_copy=kept_copies,
        budget=st.sampled_from((1, 100, 400)),
    )
    def recharge(self, server: int, news: list[News], offline_copy: Kept, budget: int) -> None:
        """Until it is complete, in as many calls as that takes."""
        for place, name, batch in news:
            self.publish(server=place, name=name, batch=batch)
        client = self._client(server)
        for _ in range(1000):
            synced = self.copies.sync(client, only=[offline_copy.name], byte_budget=budget)
            self._check_nothing_repaired()
            if synced.complete:
                return self._check_all([offline_copy], synced, False)
            assert synced[offline_copy.name].status == "incomplete"
        raise AssertionError("it never ends")

    @rule(
        server=st.integers(0, 1),
        offline_copy=kept_copies,
        cuts=st.lists(st.integers(0, 6), max_size=2),
        kind=st.sampled_from(
            ("row", "row", "lost", "state", "declaration", "spare", "stage", "sound")
        ),
    )
    def damage(self, server: int, offline_copy: Kept, cuts: list[int | None], kind: str) -> None:
        """The next sync puts it right; it finds by itself what is not a value of a row."""
        if kind == "row":
            flip_in_rows(self.copies, offline_copy.name, self.chance)
            self.copies.verify([offline_copy.name])
        elif kind == "lost":
            lose_row(self.copies, offline_copy.name, self.chance)
        else:
            flip_in_state(self.copies, offline_copy.name, self.chance, kind)
        client = self._client(server)
        self.line.cuts = cuts
        synced = self.copies.sync(client, only=[offline_copy.name])
        assert synced.complete
        self._check_all([offline_copy], synced, False)

    @rule(server=st.integers(0, 1), offline_copy=kept_copies)
    def unregister(self, server: int, offline_copy: Kept) -> None:
        """It is registered again by the next sync."""
        handle = self.copies[offline_copy.name].handle
        if handle is None:
            return
        client = self._client(server)
        client.unregister(handle)
        synced = self.copies.sync(client, only=[offline_copy.name])
        assert synced[offline_copy.name].whole and self.copies[offline_copy.name].handle != handle
        self._check_all([offline_copy], synced, False)

    @rule(server=st.integers(0, 1), offline_copy=kept_copies)
    def nothing_new(self, server: int, offline_copy: Kept) -> None:
        """A sync right after another is one call of few bytes."""
        self.run(self.cores[server].follower.catch_up())
        client = self._client(server)
        for _ in range(3):
            self.line.calls.clear()
            self.line.bytes_sent = 0
            synced = self.copies.sync(client, only=[offline_copy.name])
        assert synced[offline_copy.name].status == "unchanged"
        assert [method for method, _ in self.line.calls] == ["Sync"]
        assert self.line.bytes_sent <= 200
        self._check_all([offline_copy], synced, False)

    # ---- checks

    def _check_all(self, affected_copies: list[Kept], synced: Synced, one_position: bool) -> None:
        for offline_copy in affected_copies:
            change = synced.get(offline_copy.name)
            ended = change is not None and change.status in ("changed", "unchanged")
            if ended:
                offline_copy.asked.clock = UNKNOWN if one_position else offline_copy.target_clock
            self._check_one(offline_copy)
        if one_position and synced.complete and len(synced):
            assert (
                len(
                    {
                        self.copies[offline_copy.name].state.position
                        for offline_copy in affected_copies
                    }
                )
                == 1
            )

    def _check_nothing_repaired(self) -> None:
        """Repair would hide a change that was sent or applied wrongly."""
        for method, request in self.line.calls:
            for item in request.items if method == "Sync" else ():
                assert not (item.whole or item.HasField("have") or item.HasField("resend"))

    def _check_one(self, kept_copy: Kept) -> None:
        answer_copy = self.copies[kept_copy.name]
        if not answer_copy.synced:
            return
        stays = kept_copy.asked.query.refresh is not None and not kept_copy.asked.computes
        if stays and kept_copy.asked.clock == UNKNOWN:
            return
        self.check(kept_copy.asked, SdkSeen(answer_copy))
        answer = SdkSeen(answer_copy)
        if answer.slides and (answer.good_until is None or self.clock < answer.good_until):
            now = max(self.clock, answer.now or 0)
            assert answer.answer(None) == answer.answer(now)

    def _note(self, item: pb.SyncItem, part: pb.SyncPart) -> None:
        """A refresh point is found out when a target is chosen, and then kept."""
        offline_copy = next(
            offline_copy
            for offline_copy in self.all.values()
            if self._handle(offline_copy) == item.handle
        )
        resumed = item.token in offline_copy.resumes
        begun = part.HasField("begin") and not part.begin.continued and not resumed
        removed = part.begin.reason in NEW_TARGET
        if begun or removed:
            offline_copy.target_clock = self.clock
        if part.HasField("resume"):
            offline_copy.resumes.add(part.resume)

    def _handle(self, offline_copy: Kept) -> bytes | None:
        return self.copies[offline_copy.name].handle if offline_copy.name in self.copies else None

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
TestOffline.settings = machine_settings(7, 30)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestForLong(Offline.TestCase):  # type: ignore[misc, valid-type]
    """Thousands of runs."""

    settings = machine_settings(2000, 50)
