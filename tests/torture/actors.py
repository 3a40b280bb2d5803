"""The actors that use the store during a life, each in a thread, whatever fails.

An actor makes step after step until the life ends. A step that fails for a reason a client has to
expect (no connection, a server that refuses for now) is made again, by another server; any other
failure ends the life.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

from client_sdk import Client, Copies, PsoupError, Retry
from psoup.store.log.position import PositionCodec
from tests.oracle.comparing import Values
from tests.support.system.question import Question, values_of
from tests.torture.ledger import GivenAnswer, Ledger, Row, TakenBatch
from tests.torture.workload import DEFINITIONS, random_question, random_rows

# Errors a client gets when a process is killed, stopped, out of disk or has a wrong clock.
EXPECTED = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED"})
MOST_ROWS = 4_000
MOST_REGISTERED = 40
_CALL_SECONDS = 10.0
_RETRY = Retry(attempts=2)


class Actor:
    """`targets` are the addresses of the servers, which stay while the processes change."""

    pause = 0.1

    def __init__(self, name: str, seed: int, targets: list[str], ledger: Ledger) -> None:
        self.name = name
        self.dice = Random(f"{seed} {name}")
        self.ledger = ledger
        self._targets = targets
        self._client: Client | None = None
        # Held during a step.
        self.stepping = threading.Lock()

    def run(self, ending: threading.Event) -> None:
        """Step until `ending` is set. Raise errors that no client should get."""
        while not ending.wait(self.pause * self.dice.uniform(0.5, 1.5)):
            self.attempt(self.step)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def finish(self, patience: int = 200) -> None:
        """Finish what is in progress, now that nothing fails any more."""

    def undo(self, version: int) -> None:
        """Return to the state at a version of the log, which the store was restored to.
        What the client has seen stays with it, and in the file of copies."""

    def step(self) -> None:
        raise NotImplementedError

    def attempt(self, step: Callable[[], None]) -> bool:
        """Do a step; return True if it succeeded."""
        try:
            with self.stepping:
                step()
        except PsoupError as error:
            if error.code not in EXPECTED:
                raise
            self.ledger.count(f"refused: {error.reason or error.code}")
            self.move()
            return False
        return True

    @property
    def client(self) -> Client:
        if self._client is None:
            target = self.dice.choice(self._targets)
            self._client = Client(target, timeout=_CALL_SECONDS, retry=_RETRY)
        return self._client

    def move(self) -> None:
        """Change to another random server, with the position that was seen."""
        if self._client is not None:
            position = self._client.position
            self._client.close()
            self._client = None
            self.client.position = position


class Publishing(Actor):
    """Publishes numbered batches, and retries each until it is acknowledged."""

    def __init__(
        self, name: str, seed: int, targets: list[str], ledger: Ledger, positions: PositionCodec
    ) -> None:
        super().__init__(name, seed, targets, ledger)
        self._positions = positions
        self._sequence = 1
        self._rows = 0
        self._pending: tuple[str, list[Row]] | None = None
        # The version of the log and the rows of each batch, by sequence from 1.
        self._taken: list[tuple[int, int]] = []

    def step(self) -> None:
        if self._pending is None:
            stream = self.dice.choice(list(DEFINITIONS))
            if self.ledger.row_count(stream) > MOST_ROWS:
                return
            count = self.dice.choice([1, 1, 5, 20])
            rows = random_rows(stream, self.dice, self.name, self._rows, count)
            self._pending = stream, rows
        stream, rows = self._pending
        outcome = self.client.publish(stream, rows, publisher=self.name, sequence=self._sequence)
        assert outcome.first_row_id >= 0, f"{self.name} {self._sequence}: its content is not known"
        position = self._positions.decode(outcome.position).position
        self.ledger.take(stream, TakenBatch(position, outcome.first_row_id, tuple(rows)))
        self._taken.append((position.version, len(rows)))
        self._sequence += 1
        self._rows += len(rows)
        self._pending = None

    def undo(self, version: int) -> None:
        while self._taken and self._taken[-1][0] > version:
            _, rows = self._taken.pop()
            self._sequence -= 1
            self._rows -= rows
            self._pending = None

    def finish(self, patience: int = 200) -> None:
        while self._pending is not None:
            patience -= 1
            assert patience, f"{self.name} {self._sequence} was never acknowledged"
            self.attempt(self.step)


class Registering(Actor):
    """Registers queries under client keys, invokes them, and ends some."""

    def __init__(
        self, name: str, seed: int, targets: list[str], ledger: Ledger, positions: PositionCodec
    ) -> None:
        super().__init__(name, seed, targets, ledger)
        self._positions = positions
        self._numbers = 0
        self._mine: dict[bytes, Question] = {}
        self._versions: dict[bytes, int] = {}
        self._registering: tuple[str, Question] | None = None
        self._leaving: bytes | None = None

    def step(self) -> None:
        if self._leaving is not None or len(self._mine) > MOST_REGISTERED:
            self._leave()
        elif self._registering is not None or not self._mine or self.dice.random() < 0.15:
            self._enter()
        else:
            self._read()

    def finish(self, patience: int = 200) -> None:
        while self._leaving is not None or self._registering is not None:
            patience -= 1
            assert patience, f"{self.name}: a registration was never acknowledged"
            self.attempt(self.step)

    def _enter(self) -> None:
        if self._registering is None:
            self._numbers += 1
            self._registering = f"{self.name} {self._numbers}", random_question(self.dice)
        key, question = self._registering
        registered = self.client.register(question.sql, key=key)
        handle = registered.handle
        self._mine[handle] = question
        self._versions[handle] = self._positions.decode(registered.position).position.version
        self.ledger.register(handle, question.sql)
        self._registering = None

    def _leave(self) -> None:
        """End a registration; if an answer was lost, a repeated call finds that it has ended."""
        repeated = self._leaving is not None
        handle = self._leaving or self.dice.choice(list(self._mine))
        self._leaving = handle
        try:
            self.client.unregister(handle)
        except PsoupError as error:
            if not (repeated and error.code == "NOT_FOUND"):
                raise
        self._leaving = None
        del self._mine[handle]
        self.ledger.unregister(handle)

    def undo(self, version: int) -> None:
        for handle in [handle for handle in self._mine if self._versions[handle] > version]:
            del self._mine[handle]
            self.ledger.unregister(handle)
            if self._leaving == handle:
                self._leaving = None

    def _read(self) -> None:
        handle, question = self.dice.choice(list(self._mine.items()))
        answer = self.client.invoke(handle)
        position = self._positions.decode(answer.position).position
        record = GivenAnswer("invoke", question, position, answer.now, tuple(values_of(answer)))
        self.ledger.answer(record)


class Travelling(Actor):
    """Keeps copies in a file, syncs them at times, and reads them in between."""

    pause = 0.3

    def __init__(
        self,
        name: str,
        seed: int,
        targets: list[str],
        ledger: Ledger,
        positions: PositionCodec,
        file: Path,
    ) -> None:
        super().__init__(name, seed, targets, ledger)
        self._positions = positions
        self._copies = Copies(file)
        self._questions = {f"copy{n}": random_question(self.dice) for n in range(6)}
        for copy, question in self._questions.items():
            self._copies.keep(copy, question.sql)

    def step(self) -> None:
        synced = self._copies.sync(self.client)
        for name, change in synced.items():
            if change.error is not None and change.error.code not in EXPECTED:
                raise change.error
            if change.status in ("changed", "unchanged"):
                self._record(name)

    def finish(self, patience: int = 200) -> None:
        while not self.attempt(self.step):
            patience -= 1
            assert patience, f"{self.name} could not sync any more"
        self._copies.close()

    def _record(self, name: str) -> None:
        copy = self._copies[name]
        state = copy.state
        values: tuple[Values, ...] = tuple(tuple(row.values()) for row in copy.rows(state.now))
        position = self._positions.decode(state.position).position
        record = GivenAnswer("copies", self._questions[name], position, state.now, values)
        self.ledger.answer(record)
