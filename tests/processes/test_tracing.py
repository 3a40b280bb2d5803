"""Traces of a real server, received by a real receiver of OTLP in the test's process."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span

from client_sdk import Client, PsoupError
from client_sdk.copies import Copies
from psoup.answers.stages import Stages
from psoup.server.call_trace import CallTrace
from psoup.store import Store
from psoup.tracing import ENDPOINT
from tests.engine.test_process import ROOT, spawn
from tests.support.server.process import ServerProcess
from tests.support.system.processes import START_SECONDS
from tests.support.web import fetch

pytestmark = pytest.mark.process

_SECONDS = 60.0
_TRACE, _PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Receiver(ThreadingHTTPServer):
    """Keeps the spans that are posted to it, with the name of their service."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Any] = []
        self.services: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, content: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(content).resource_spans:
            attributes = {
                item.key: item.value.string_value for item in resource.resource.attributes
            }
            self.services.add(attributes["service.name"])
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def wait_for(self, *names: str) -> list[Any]:
        """Return the spans of one trace once it has these names."""
        deadline = time.monotonic() + _SECONDS
        while True:
            for trace in {span.trace_id for span in self.spans}:
                spans = [span for span in self.spans if span.trace_id == trace]
                if set(names) <= {span.name for span in spans}:
                    return spans
            assert time.monotonic() < deadline, sorted({span.name for span in self.spans})
            time.sleep(0.05)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            content = gzip.decompress(content)
        self.server.take(content)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class WebProcess(ServerProcess):
    module = "psoup.web"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, args=(0.02,))
        thread.start()
        monkeypatch.setenv(ENDPOINT, receiver.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield receiver
        receiver.shutdown()
        thread.join()


def only(spans: list[Any], name: str) -> Any:
    (span,) = [span for span in spans if span.name == name]
    return span


def attributes(span: Any) -> dict[str, Any]:
    values = {item.key: item.value for item in span.attributes}
    return {key: value.string_value or value.int_value for key, value in values.items()}


def numbers(count: int) -> pa.Table:
    return pa.table({"a": pa.array(range(count), pa.int64())})


def test_calls_have_spans_with_the_stages_of_explain(receiver: Receiver, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store")
    try:
        with Client(server.address) as client:
            client.define("CREATE STREAM s (a BIGINT)")
            client.publish("s", numbers(100))
            client.register("SELECT a FROM s WHERE a > 5", key="k")
            stages = [name for name, _ in client.explain("k").run.stages]
            # Another predicate, so that its rows are computed.
            client.register("SELECT a FROM s WHERE a > 6", key="l")
            assert len(list(client.invoke("l"))) == 93
            with Copies(tmp_path / "phone.db") as copies:
                copies.keep("c", "SELECT a FROM s")
                copies.sync(client)
        published = receiver.wait_for("psoup.Publish", "psoup.append")
        append, publish = only(published, "psoup.append"), only(published, "psoup.Publish")
        assert append.parent_span_id == publish.span_id
        spans = receiver.wait_for("psoup.Invoke", *(f"psoup.{stage}" for stage in stages))
        invoke = only(spans, "psoup.Invoke")
        assert {span.parent_span_id for span in spans if span is not invoke} == {invoke.span_id}
        expected = {"psoup.method": "Invoke", "psoup.streams": 1, "psoup.rows": 93}
        assert expected.items() <= attributes(invoke).items()
        assert attributes(invoke)["psoup.computed"] == 100
        assert {span.kind for span in spans if span is not invoke} == {invoke.SPAN_KIND_INTERNAL}
        assert invoke.kind == publish.kind == invoke.SPAN_KIND_SERVER
        for span in spans:
            assert invoke.start_time_unix_nano <= span.start_time_unix_nano
            assert span.start_time_unix_nano <= span.end_time_unix_nano
        synced = receiver.wait_for("psoup.Sync", "psoup.sync_item")
        assert attributes(only(synced, "psoup.sync_item"))["psoup.mode"] == "whole"
        assert receiver.services == {"psoup-server"}
        assert not any("SELECT" in str(span) for span in receiver.spans)
    finally:
        server.stop()


def test_the_caller_names_the_trace_and_errors_name_it_again(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PSOUP_TRACE_SQL", "1")
    server = WebProcess(tmp_path / "store", "--web", "127.0.0.1:0")
    try:
        port = int(server.read_line().rpartition(":")[2])
        header = {"traceparent": f"00-{_TRACE}-{_PARENT}-01"}
        reply = fetch(port, "GET", "/v1/ask", headers=header, parameters={"sql": "SELECT a FROM t"})
        assert reply.status == 404 and json.loads(reply.body)["trace_id"] == _TRACE
        (ask,) = [span for span in receiver.wait_for("psoup.Ask") if span.name == "psoup.Ask"]
        assert (ask.trace_id.hex(), ask.parent_span_id.hex()) == (_TRACE, _PARENT)
        assert ask.status.code == ask.status.STATUS_CODE_ERROR
        # A caller that does not sample gets no span.
        unsampled = {"traceparent": f"00-{_TRACE[::-1]}-{_PARENT}-00"}
        fetch(port, "GET", "/v1/streams", headers=unsampled)
        with Client(server.address) as client, pytest.raises(PsoupError) as refused:
            client.ask("SELECT b FROM t")
        assert len(refused.value.detail.trace_id) == 32
        server.define("CREATE STREAM t (a BIGINT)")
        fetch(port, "GET", "/v1/ask", parameters={"sql": "SELECT a FROM t"})
        receiver.wait_for("psoup.Ask", "psoup.plan")
    finally:
        server.stop()
    assert _TRACE[::-1] not in {span.trace_id.hex() for span in receiver.spans}
    texts = {attributes(span).get("psoup.sql") for span in receiver.spans}
    assert "SELECT a FROM t" in texts


def test_the_sdk_makes_the_parent_of_the_server_span(receiver: Receiver, tmp_path: Path) -> None:
    """In a process of its own: the provider of a program is set once."""
    server = ServerProcess(tmp_path / "store")
    program = (
        "import sys\n"
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import SimpleSpanProcessor\n"
        "from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter\n"
        "from client_sdk import Client\n"
        "provider, spans = TracerProvider(), InMemorySpanExporter()\n"
        "provider.add_span_processor(SimpleSpanProcessor(spans))\n"
        "trace.set_tracer_provider(provider)\n"
        "with Client(sys.argv[1]) as client:\n"
        "    with trace.get_tracer('mine').start_as_current_span('mine') as span:\n"
        "        client.define('CREATE STREAM s (a BIGINT)')\n"
        "context = span.get_span_context()\n"
        "print(f'{context.trace_id:032x} {context.span_id:016x}')\n"
        "for span in spans.get_finished_spans():\n"
        "    print(span.name, f'{span.context.span_id:016x}')\n"
    )
    try:
        command = [sys.executable, "-c", program, server.address]
        output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        first, *lines = output.stdout.splitlines()
        trace_id, span_id = first.split()
        spans = receiver.wait_for("psoup.Define")
        define = only(spans, "psoup.Define")
        assert define.trace_id.hex() == trace_id
        # Between them is the span of the SDK.
        names = {parent: name for name, parent in (line.split() for line in lines)}
        assert names[define.parent_span_id.hex()] == "psoup.Define" and span_id in names
    finally:
        server.stop()


class Adding:
    """A tracing whose spans are dropped. While a call ends, a thread adds a stage to it."""

    shows_sql = False

    def __init__(self) -> None:
        self.children: list[str] = []
        self.stages = Stages()

    def begin(self, name: str, metadata: object) -> Span:
        provider: TracerProvider = TracerProvider()
        return provider.get_tracer("test").start_span(name)

    def add_child(self, parent: Span, name: str, *_: object) -> None:
        self.children.append(name)
        self.stages.add(f"stage {len(self.children)}", 0.0)


def test_a_call_ends_while_a_thread_makes_its_answer() -> None:
    tracing = Adding()
    trace = CallTrace(tracing, "Invoke", ())  # type: ignore[arg-type]
    trace.stages = tracing.stages
    for name in ("plan", "match"):
        tracing.stages.add(name, 0.0)
    trace.end("CANCELLED", "")
    assert tracing.children == ["psoup.plan", "psoup.match"]


def test_without_the_variable_there_is_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ENDPOINT, raising=False)
    server = ServerProcess(tmp_path / "store")
    try:
        with Client(server.address) as client, pytest.raises(PsoupError) as refused:
            client.ask("SELECT b FROM t")
        assert refused.value.detail.trace_id == ""
    finally:
        server.stop()


@pytest.mark.long
@pytest.mark.spark
def test_an_engine_has_a_trace_for_each_step(receiver: Receiver, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store")
    process = spawn(Store.open(tmp_path / "store"), tmp_path / "engine.log")
    try:
        server.define("CREATE STREAM s (a BIGINT)")
        server.publish("s", numbers(100))
        deadline = time.monotonic() + START_SECONDS
        rows = 0
        while rows < 100:
            steps = [span for span in receiver.spans if span.name == "psoup.step"]
            rows = sum(attributes(span)["psoup.rows"] for span in steps)
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert len({span.trace_id for span in steps}) == len(steps)
        stages = ("read", "write", "match", "join", "publish")
        trace = receiver.wait_for("psoup.step", *(f"psoup.{stage}" for stage in stages))
        step = only(trace, "psoup.step")
        assert {span.parent_span_id for span in trace if span is not step} == {step.span_id}
        assert step.kind == step.SPAN_KIND_INTERNAL
        assert "psoup-engine" in receiver.services
    finally:
        process.kill()
        process.wait()
        server.stop()
