"""Worked answers in one store, each in a tenant of its own, and their comparison with another
store: those here, and those of the papers, if they are beside the repository."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from client_sdk import Client
from datastem.instants import from_micros
from tests.golden.several import Line, bag, define_line, line_of, lines, publish_span

_KEY = "worked"
_JOIN: Mapping[str, Any] = {
    "name": "orders and payments within three seconds",
    "sql": "SELECT o.item FROM placed AS o JOIN paid AS p ON o.item = p.item RANGE 3 SECONDS",
    "columns": {"placed": ["item"], "paid": ["item"]},
    "streams": {
        "placed": [["pen", 1], ["ink", 2], ["pen", 4]],
        "paid": [["pen", 3], ["ink", 6]],
    },
    "at": {"1": [], "3": [["pen"]], "4": [["pen"]], "5": [["pen"]], "6": []},
}
_KEYED: Mapping[str, Any] = {
    "name": "prices that change and end",
    "sql": "SELECT item, cost FROM price WHERE cost > 3",
    "columns": {"price": ["item", "cost"]},
    "keys": {"price": ["item"]},
    "deletes": {"price": "cost IS NULL"},
    "streams": {"price": [["pen", 3, 1], ["ink", 5, 2], ["pen", 4, 4], ["ink", None, 6]]},
    "at": {"1": [], "2": [["ink", 5]], "4": [["ink", 5], ["pen", 4]], "6": [["pen", 4]]},
}


class WorkedAnswers:
    """The examples in the store at `target`; their rows are published piece by piece."""

    def __init__(self, target: str, pieces: int) -> None:
        examples = [line_of(_JOIN), line_of(_KEYED), *lines()]
        self._lines = {f"golden-{number}": line for number, line in enumerate(examples)}
        # The answers to compare once all rows are published: also the newest of each.
        self.answer_count = sum(len(line.answers) + 1 for line in examples)
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
