"""A server as a process of its own, and the few calls tests make of it."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
from grpc_status import rpc_status

from psoup.server.wire.arrow import Message, serialize
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from psoup.write.timepiece import VARIABLE
from tests.support.server.forking import fork_program

ROOT = Path(__file__).resolve().parents[3]
_READY = "server ready on "
_END_SECONDS = 120


async def received(messages: AsyncIterator[Message]) -> list[pb.InvokeResponse]:
    """Return what a client would receive of an answer."""
    return [pb.InvokeResponse.FromString(serialize(message)) async for message in messages]


class ServerProcess:
    """Started and ready after `__init__`; `kill` and `stop` end it."""

    module = "psoup.server"

    def __init__(self, store: Path, *options: str, clock: Path | None = None) -> None:
        """`clock` is a file that stands for the clock of another machine."""
        command = [self.module, "--store", str(store), "--port", "0", *options]
        self.errors = store.parent / f"server-{os.urandom(4).hex()}.log"
        environment = os.environ | ({} if clock is None else {VARIABLE: str(clock)})
        read_end, output = os.pipe()
        # Open until the server has ended, so that it can print.
        self._output = os.fdopen(read_end)
        with self.errors.open("wb") as errors:
            self._process = fork_program(command, ROOT, environment, output, errors.fileno())
        os.close(output)
        line = self._output.readline()
        if not line.startswith(_READY):
            self._process.kill()
            self.wait()
            raise AssertionError(self.errors.read_text())
        self.address = line.removeprefix(_READY).strip()
        self.channel = grpc.insecure_channel(
            self.address, options=[("grpc.max_receive_message_length", -1)]
        )
        self.stub: Any = PsoupStub(self.channel)
        self.tenant = ""

    def of(self, tenant: str) -> ServerProcess:
        """Return the same server, with calls as that tenant."""
        process = copy.copy(self)
        process.tenant = tenant
        return process

    def read_line(self) -> str:
        """Return the next line that the server prints, such as that of another port."""
        return self._output.readline().strip()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def kill(self) -> None:
        self.channel.close()
        self._process.kill()
        self.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Return the exit code."""
        self.channel.close()
        self.send_signal(number)
        return self.wait()

    def send_signal(self, number: int = signal.SIGTERM) -> None:
        """Do nothing if the server has ended."""
        if self._process.is_alive():
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Return the exit code of a server that is about to end."""
        self._process.join(_END_SECONDS)
        self._output.close()
        code = self._process.exitcode
        assert code is not None, f"the server has not ended after {_END_SECONDS} s"
        return code

    # ---- calls

    def define(self, sql: str, **fields: Any) -> pb.DefineResponse:
        response: pb.DefineResponse = self.stub.Define(
            pb.DefineRequest(sql=sql, **self._with(fields))
        )
        return response

    def register(self, sql: str, **fields: Any) -> pb.RegisterResponse:
        response: pb.RegisterResponse = self.stub.Register(
            pb.RegisterRequest(sql=sql, **self._with(fields))
        )
        return response

    def publish(self, stream: str, table: pa.Table | None = None, **fields: Any) -> Any:
        """One batch; `table` in Arrow, or another form among the fields."""
        arrow: dict[str, Any] = {} if table is None else {"arrow": ipc(table)}
        return self.stub.Publish(pb.PublishRequest(stream=stream, **arrow, **self._with(fields)))

    def invoke(self, handle: bytes, **fields: Any) -> tuple[pb.AnswerHeader, pa.Table]:
        """Return the answer in Arrow."""
        fields = self._with(fields)
        request = pb.InvokeRequest(handle=handle, encoding=pb.ENCODING_ARROW, **fields)
        return _in_arrow(*self.stub.Invoke(request, timeout=120))

    def ask(self, sql: str, **fields: Any) -> tuple[pb.AnswerHeader, pa.Table]:
        """Return the answer of a query that is not registered, in Arrow."""
        request = pb.AskRequest(sql=sql, encoding=pb.ENCODING_ARROW, **self._with(fields))
        return _in_arrow(*self.stub.Ask(request, timeout=120))

    def values(self, handle: bytes, **fields: Any) -> list[list[Any]]:
        """Return the answer in typed values."""
        request = pb.InvokeRequest(handle=handle, **self._with(fields))
        _, *parts = self.stub.Invoke(request, timeout=120)
        return [
            [getattr(v, v.WhichOneof("kind")) if v.WhichOneof("kind") else None for v in row.values]
            for part in parts
            for row in part.rows.rows
        ]

    def _with(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {"tenant": self.tenant, **fields}


def _in_arrow(
    header: pb.InvokeResponse, *parts: pb.InvokeResponse
) -> tuple[pb.AnswerHeader, pa.Table]:
    assert header.HasField("header")
    table = pa.ipc.open_stream(b"".join(part.arrow for part in parts)).read_all()
    assert table.num_rows == header.header.row_count
    return header.header, table


def ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def detail(error: Any) -> pb.ErrorDetail:
    """Return the structured part of a status."""
    status = rpc_status.from_call(error)
    assert status is not None and len(status.details) == 1, error
    error_detail = pb.ErrorDetail()
    assert status.details[0].Unpack(error_detail)
    return error_detail


def rows_of(columns: Sequence[str], *rows: Sequence[pb.Value]) -> pb.Rows:
    return pb.Rows(columns=columns, rows=[pb.Row(values=row) for row in rows])
