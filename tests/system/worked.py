"""The worked answers of the papers in one store, each in a tenant of its own, and their comparison
with another store."""

from __future__ import annotations

from collections.abc import Iterator

from client_sdk import Client
from datastem.instants import from_micros
from tests.golden.several import Line, bag, define_line, lines, publish_span

_KEY = "worked"


class WorkedAnswers:
    """The examples in the store at `target`; their rows are published piece by piece."""

    def __init__(self, target: str, pieces: int) -> None:
        self._lines = {f"golden-{number}": line for number, line in enumerate(lines())}
        # Until which instant the rows of each are published.
        self._until = dict.fromkeys(self._lines, 0)
        self._pieces = {tenant: _cut(line, pieces) for tenant, line in self._lines.items()}
        self._clients = {tenant: Client(target, tenant=tenant) for tenant in self._lines}
        for tenant, line in self._lines.items():
            define_line(self._clients[tenant], line)
            self._clients[tenant].register(line.sql, key=_KEY)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def publish(self) -> None:
        """Publish the next piece of each."""
        for tenant, spans in self._pieces.items():
            for begin, end in next(spans, ()):
                publish_span(self._clients[tenant], self._lines[tenant], begin, end)
                self._until[tenant] = end

    def compare(self, other: str) -> int:
        """Assert that the store at `other` answers as this one does, and as the papers do; return
        how many answers were compared."""
        count = 0
        for tenant, line in self._lines.items():
            with Client(other, tenant=tenant) as second:
                clients = (self._clients[tenant], second)
                for at, expected in line.answers.items():
                    if at > self._until[tenant]:
                        continue
                    for client in clients:
                        options = {"as_of": from_micros(at), "knowledge": "today"}
                        registered = bag(client.invoke(_KEY, **options).rows)  # type: ignore[arg-type]
                        asked = bag(client.ask(line.sql, **options).rows)  # type: ignore[arg-type]
                        assert registered == asked == expected, (line.name, at)
                    count += 1
                newest, restored = (bag(client.invoke(_KEY).rows) for client in clients)
                assert newest == restored, line.name
                count += 1
        return count


def _cut(line: Line, pieces: int) -> Iterator[list[tuple[int, int]]]:
    """Return the spans of a line in about so many lists."""
    spans = list(line.spans)
    size = -(-len(spans) // pieces)
    return iter([spans[begin : begin + size] for begin in range(0, len(spans), size)])
