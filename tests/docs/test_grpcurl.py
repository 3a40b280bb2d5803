"""The session of docs/reference/protocol.md: what grpcurl prints, line by line.

The short run replays the session with a stand-in that learns the wire by reflection, as grpcurl
does, and writes JSON in its form. The long run also builds the real tool, if Go is installed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
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
from grpc_status import rpc_status

from psoup.v1 import psoup_pb2 as pb
from tests.support.docs.go import install
from tests.support.docs.markdown import blocks, read
from tests.support.system.processes import RunningStore

PAGE = read("docs/reference/protocol.md")
GRPCURL = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3"
SERVED = "localhost:7181"

pytestmark = pytest.mark.process

Variables = dict[str, str]


def _exchanges() -> Iterator[tuple[str, str]]:
    """Each command of the page, and what it shows."""
    for block in blocks(PAGE, "console"):
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            if command.startswith("grpcurl"):
                yield command, expected


def _like(expected: str, printed: str) -> bool:
    """Whether they are equal, but for `…`: alone on a line any lines, else any part of one."""
    pattern = "".join(
        "(?:.*\n)*?" if line.strip() == "…" else ".*".join(map(re.escape, line.split("…")))
        for line in expected.splitlines(keepends=True)
    )
    return re.fullmatch(pattern, printed) is not None


def _replay(run: Callable[[str, Variables], str]) -> set[str]:
    """Return the methods called, after asserting what each command shows."""
    variables: Variables = {"HANDLE": "", "TOKEN": "", "KEY": "", "ID": ""}
    called = set()
    for command, expected in _exchanges():
        printed = run(command, variables)
        assert _like(expected, printed), f"{command}\n{printed}"
        method = command.split()[-1]
        called.add(method)
        if method.endswith("/Register") and (handle := re.search('"handle": "(.*)"', printed)):
            variables["HANDLE"] = handle[1]
        if method.endswith("/Sync") and (token := re.search('"token": "(.*)"', printed)):
            variables["TOKEN"] = token[1]
        if method.endswith("/CreateKey") and (secret := re.search('"secret": "(.*)"', printed)):
            variables |= {"KEY": secret[1], "ID": secret[1].split("_")[1]}
    return called


# ---- the real tool


@pytest.mark.long
def test_grpcurl_prints_what_the_page_shows(tmp_path: Path) -> None:
    path = install(tmp_path / "bin", GRPCURL)
    with RunningStore(tmp_path) as store:
        address = store.start_server()

        def run(command: str, variables: Variables) -> str:
            done = subprocess.run(
                ["sh", "-c", command.replace(SERVED, address)],
                env=os.environ | variables | {"PATH": path},
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            return done.stdout + done.stderr

        _replay(run)


# ---- a stand-in


def test_the_session_calls_every_method_and_gets_what_the_page_shows(tmp_path: Path) -> None:
    with (
        RunningStore(tmp_path) as store,
        grpc.insecure_channel(store.start_server()) as channel,
    ):
        called = _replay(Reflected(channel).run)
    service = pb.DESCRIPTOR.services_by_name["Psoup"]
    assert {f"{service.full_name}/{method.name}" for method in service.methods} <= called


class Reflected:
    """A client that knows of the wire only what reflection tells, and prints as grpcurl does."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self._database = ProtoReflectionDescriptorDatabase(channel)
        self._pool = DescriptorPool(self._database)

    def run(self, command: str, variables: Variables) -> str:
        for name, value in variables.items():
            command = command.replace(f"${name}", value)
        words = shlex.split(command)
        if words[-1] == "list":
            return "".join(f"{name}\n" for name in sorted(self._database.get_services()))
        data = words[words.index("-d") + 1] if "-d" in words else "{}"
        headers = [words[place + 1] for place, word in enumerate(words) if word == "-H"]
        service, name = words[-1].split("/")
        method = self._pool.FindServiceByName(service).FindMethodByName(name)
        try:
            replies = self._send(f"/{words[-1]}", method, _documents(data), headers)
            return "".join(map(_printed, replies))
        except grpc.RpcError as error:
            code = error.code().name.title().replace("_", "")
            status = rpc_status.from_call(error)  # type: ignore[arg-type]
            details = _printed_details(status)
            return f"ERROR:\n  Code: {code}\n  Message: {error.details()}\n{details}"

    def _send(
        self, path: str, method: MethodDescriptor, requests: list[Any], headers: list[str]
    ) -> Iterator[Any]:
        kind = message_factory.GetMessageClass(method.input_type)
        reply = message_factory.GetMessageClass(method.output_type)
        messages = [json_format.ParseDict(request, kind()) for request in requests]
        call = self._channel.stream_stream(path, kind.SerializeToString, reply.FromString)
        pairs = (header.partition(": ") for header in headers)
        metadata = tuple((name, value) for name, _, value in pairs)
        yield from call(iter(messages), timeout=120, metadata=metadata)


def _documents(text: str) -> list[Any]:
    documents, decoder = [], json.JSONDecoder()
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        documents.append(document)
        text = text[end:]
    return documents


def _printed_details(status: Any) -> str:
    """Return the details of a status in grpcurl's form: numbered, with the fields by name."""
    if status is None or not status.details:
        return ""
    details = []
    for number, detail in enumerate(status.details, start=1):
        text = json.dumps(json_format.MessageToDict(detail), indent=2, sort_keys=True)
        details.append(f"  {number})\t" + text.replace("\n", "\n    \t") + "\n")
    return "  Details:\n" + "".join(details)


def _printed(message: Any) -> str:
    """JSON in Go's form: whole doubles without a point, `<`, `>` and `&` escaped."""
    text = json.dumps(json_format.MessageToDict(message), indent=2, ensure_ascii=False)
    text = re.sub(r"(?m)(: -?\d+)\.0(,?)$", r"\1\2", text)
    return re.sub("[<>&]", lambda printed: f"\\u{ord(printed[0]):04x}", text) + "\n"
