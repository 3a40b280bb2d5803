"""The two clients: the same methods, parameters and docstrings, written twice for the editor."""

from __future__ import annotations

import inspect

import pytest

from client_sdk import AsyncClient, AsyncPublisher, Client, Publisher

# `close` speaks of threads in one and of tasks in the other, `invoke_stream` of `with`.
WORDED_APART = {"close", "invoke_stream"}


def methods(kind: type) -> dict[str, object]:
    return {name: method for name, method in vars(kind).items() if not name.startswith("_")}


@pytest.mark.parametrize(
    ("sync", "asynchronous"), [(Client, AsyncClient), (Publisher, AsyncPublisher)]
)
def test_both_have_the_same_methods(sync: type, asynchronous: type) -> None:
    assert methods(sync).keys() == methods(asynchronous).keys()
    for name, method in methods(sync).items():
        twin = methods(asynchronous)[name]
        assert name in WORDED_APART or inspect.getdoc(method) == inspect.getdoc(twin), name
        assert inspect.getdoc(method), f"{name} has no docstring"
        if callable(method) and callable(twin):
            assert parameters(method) == parameters(twin), name


def parameters(method: object) -> list[tuple[str, object]]:
    signature = inspect.signature(method)  # type: ignore[arg-type]
    return [(name, parameter.default) for name, parameter in signature.parameters.items()]
