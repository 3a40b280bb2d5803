"""The worked answers of the papers in one store, each in a tenant of its own, and their comparison
with another store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from client_sdk import Client
from datastem.instants import from_micros
from tests.golden.several import Line, bag, define_line, lines, publish_span

_KEY = "worked"


class WorkedAnswers:
    """The examples in the store at `target`; their rows are published piece by piece."""

    def __init__(self, target: str, pieces: int) -> None:
        self._target = target
        self._lines = {f"golden-{number}": line for number, line in enumerate(lines())}
        # Until which instant the rows of each are published.
        self._until = dict.fromkeys(self._lines, 0)
        self._pieces = {tenant: _cut(line, pieces) for tenant, line in self._lines.items()}
        for tenant, line in self._lines.items():
            with Client(target, tenant=tenant) as client:
                define_line(client, line)
                client.register(line.sql, key=_KEY)

    def publish(self) -> None:
        """Publish the next piece of each."""
        for tenant, spans in self._pieces.items():
            with Client(self._target, tenant=tenant) as client:
                for begin, end in next(spans, ()):
                    publish_span(client, self._lines[tenant], begin, end)
                    self._until[tenant] = end

    def compare(self, other: str) -> int:
        """Assert that the store at `other` answers as this one does, and as the papers do; return
        how many answers were compared."""
        count = 0
        for tenant, line in self._lines.items():
            with _clients(tenant, self._target, other) as clients:
                for at, expected in line.answers.items():
                    if at > self._until[tenant]:
                        continue
                    for client in clients:
                        options = {"as_of": from_micros(at), "knowledge": "today"}
                        registered = bag(client.invoke(_KEY, **options).rows)  # type: ignore[arg-type]
                        asked = bag(client.ask(line.sql, **options).rows)  # type: ignore[arg-type]
                        assert registered == asked == expected, (line.name, at)
                    count += 1
                first, second = (bag(client.invoke(_KEY).rows) for client in clients)
                assert first == second, line.name
                count += 1
        return count


@contextmanager
def _clients(tenant: str, *targets: str) -> Iterator[list[Client]]:
    clients = [Client(target, tenant=tenant) for target in targets]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


def _cut(line: Line, pieces: int) -> Iterator[list[tuple[int, int]]]:
    """Return the spans of a line in about so many lists."""
    spans = list(line.spans)
    size = -(-len(spans) // pieces)
    return iter([spans[begin : begin + size] for begin in range(0, len(spans), size)])
