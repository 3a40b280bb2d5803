"""docs/protocol.md: its table of errors is complete, and its session runs as it is written."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from datastem.errors import DataError
from psoup.server.errors import CODES, code_of, detail_of
from psoup.store.errors import Conflict, StoreError
from querystem.language import NotYet, QueryError
from tests.docs.markdown import ROOT, blocks, code, read, table
from tests.system.processes import RunningStore

PAGE = read("docs/protocol.md")
ERRORS = {code(row[0]): row[1] for row in table(PAGE, "reason", "code", "when")}

# ---- the table of errors

_RAISED = {"RowError", "BadValue", "_bad_value", "_name_error"}


def _constant(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _reasons(tree: ast.Module) -> Iterator[str | None]:
    """Reasons as the code gives them: an attribute, a keyword, or the first argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id in ("reason", "default_reason"):
                yield _constant(node.value)
        elif isinstance(node, ast.keyword) and node.arg == "reason":
            yield _constant(node.value)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in _RAISED and node.args:
            yield _constant(node.args[0])


def test_every_reason_in_the_code_is_in_the_table() -> None:
    found = {"NOT_YET"}
    for folder in ("psoup/server", "querystem/language", "datastem"):
        for path in (ROOT / folder).glob("*.py"):
            found |= {reason for reason in _reasons(ast.parse(path.read_text())) if reason}
    abstract = {"SERVER", "QUERY"}
    assert found - abstract - set(ERRORS) == set()


@pytest.mark.parametrize("kind", [k for k in CODES if k not in (DataError, StoreError, QueryError)])
def test_the_table_has_the_code_of_every_error(kind: type[Exception]) -> None:
    if kind is Conflict:
        error: Exception = Conflict("log", 1)
    elif issubclass(kind, NotYet):
        error = NotYet("this", None)
    elif kind.__name__ == "RowError":
        error = kind("WRONG_TYPE", "x")
    else:
        error = kind("x")
    reason = detail_of(error, "").reason
    if reason != "SERVER":
        assert ERRORS[reason] == code_of(error).name


# ---- the session


class Reflected:
    """What grpcurl does: method descriptors from the server, messages from JSON."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self._database = ProtoReflectionDescriptorDatabase(channel)
        self._pool = DescriptorPool(self._database)

    def services(self) -> list[str]:
        return sorted(self._database.get_services())

    def call(self, path: str, requests: list[Any]) -> list[Any]:
        """The responses, or one text of the error."""
        service, name = path.split("/")
        method = self._pool.FindServiceByName(service).FindMethodByName(name)
        try:
            responses = list(self._send(f"/{path}", method, requests or [{}]))
        except grpc.RpcError as error:
            return [_error_text(error)]
        return [json_format.MessageToDict(response) for response in responses]

    def _send(self, path: str, method: MethodDescriptor, requests: list[Any]) -> Iterator[Any]:
        kind = message_factory.GetMessageClass(method.input_type)
        reply = message_factory.GetMessageClass(method.output_type)
        messages = [json_format.ParseDict(request, kind()) for request in requests]
        call = self._channel.stream_stream(path, kind.SerializeToString, reply.FromString)
        yield from call(iter(messages), timeout=30)


def _error_text(error: grpc.RpcError) -> str:
    name = error.code().name.title().replace("_", "")
    lines = str(error.details()).splitlines()
    return "\n".join(["ERROR:", f"  Code: {name}", f"  Message: {lines[0]}", *lines[1:]])


def _exchanges() -> Iterator[tuple[str, str]]:
    """Each command of the page, and what it shows."""
    for block in blocks(PAGE, "console"):
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown


def _documents(text: str) -> list[Any]:
    found, decoder = [], json.JSONDecoder()
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


def _like(shown: Any, got: Any) -> bool:
    """Equal but for `…`; a key `…` stands for any others."""
    if shown == "…":
        return True
    if isinstance(shown, dict) and isinstance(got, dict):
        rest = set(got) - set(shown)
        return ("…" in shown or not rest) and all(
            key == "…" or (key in got and _like(value, got[key])) for key, value in shown.items()
        )
    if isinstance(shown, list) and isinstance(got, list):
        return len(shown) == len(got) and all(map(_like, shown, got))
    return bool(shown == got)


def _stripped(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


@pytest.mark.process
def test_the_session_runs_as_written(tmp_path: Path) -> None:
    with (
        RunningStore(tmp_path) as store,
        grpc.insecure_channel(store.start_server()) as channel,
    ):
        _replay(Reflected(channel))


def _replay(server: Reflected) -> None:
    handle, token, called = "", "", set()
    for command, shown in _exchanges():
        words = [
            word.replace("$HANDLE", handle).replace("$TOKEN", token)
            for word in shlex.split(command)
        ]
        if words[0] != "grpcurl":
            continue
        if words[-1] == "list":
            assert shown.split() == server.services()
            continue
        called.add(words[-1])
        data = words[words.index("-d") + 1] if "-d" in words else ""
        responses = server.call(words[-1], _documents(data))
        if shown.startswith("ERROR"):
            assert _stripped(responses[0]) == _stripped(shown)
            continue
        assert _like(_documents(shown), responses), (command, responses)
        if words[-1].endswith("/Register"):
            handle = responses[0]["handle"]
        if words[-1].endswith("/Sync"):
            token = responses[-1]["end"]["token"]
    service = server._pool.FindServiceByName("psoup.v1.Psoup")
    assert {f"psoup.v1.Psoup/{method.name}" for method in service.methods} <= called
