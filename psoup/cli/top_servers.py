"""The servers at an address: one, or a group of several, which the kernel divides connections
between."""

from __future__ import annotations

from collections.abc import Callable

from client_sdk import Client, ConnectionFailed, StoreStatus

# Connections that are tried for each server of a group: with that many, one is rarely missed.
_TRIES_PER_SERVER = 8


class Servers:
    """The servers at one address, each by a connection of its own."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._clients: list[Client] = []

    def ask(self) -> list[tuple[Client, StoreStatus]]:
        """Return the status of each server that answers. Raise ConnectionFailed if none does."""
        self._clients = self._clients or [self._connect()]
        answers: dict[str, tuple[Client, StoreStatus]] = {}
        failure: ConnectionFailed | None = None
        for client in list(self._clients):
            try:
                self._add(answers, client)
            except ConnectionFailed as error:
                failure = error
        if not answers:
            assert failure is not None
            raise failure
        # Callers who are no operators do not learn how many there are.
        count = max(status.server_count for _, status in answers.values())
        for _ in range(_TRIES_PER_SERVER * count):
            if len(answers) >= count:
                break
            self._clients.append(self._connect())
            try:
                self._add(answers, self._clients[-1])
            except ConnectionFailed:
                self._drop(self._clients[-1])
        return list(answers.values())

    def _add(self, answers: dict[str, tuple[Client, StoreStatus]], client: Client) -> None:
        """Ask by a client; drop it if it has reached a server that another one reaches."""
        status = client.status()
        if status.server in answers:
            self._drop(client)
        else:
            answers[status.server] = client, status

    def _drop(self, client: Client) -> None:
        self._clients.remove(client)
        client.close()

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self._clients = []
