"""Traces of a process, sent by OpenTelemetry: off unless OTEL_EXPORTER_OTLP_ENDPOINT is set.

The package is the extra `psoup[otel]`. Its own variables hold too, such as OTEL_SERVICE_NAME and
OTEL_TRACES_SAMPLER. By default the caller decides whether a call is sampled.
"""

from __future__ import annotations

import importlib.util
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from psoup.version import software_version

if TYPE_CHECKING:
    from opentelemetry.trace import Span

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
WITH_SQL = "PSOUP_TRACE_SQL"
_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_SCOPE = "psoup"
_HEADERS = ("traceparent", "tracestate")
# How long the end of a process waits for its last spans to be sent.
_FLUSH_SECONDS = 2.0

Attributes = Mapping[str, str | int]


def open_tracing(role: str) -> Tracing | None:
    """Return what sends the traces of a server or an engine; None if it is off. Raise ValueError if
    the package is missing."""
    if not os.environ.get(ENDPOINT):
        return None
    try:
        is_missing = any(importlib.util.find_spec(name) is None for name in _PACKAGES)
    except ModuleNotFoundError:
        is_missing = True
    if is_missing:
        raise ValueError(f"{ENDPOINT} needs OpenTelemetry: pip install 'psoup[otel]'")
    return Tracing(role)


class Tracing:
    """The tracer of a process, and the way of its spans to a receiver of OTLP over HTTP."""

    def __init__(self, role: str) -> None:
        # Imported here, since a process without traces runs without the package.
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        name = os.environ.get("OTEL_SERVICE_NAME") or f"psoup-{role}"
        version = software_version()
        resource = Resource.create({"service.name": name, "service.version": version})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer(_SCOPE, version)
        self._propagator = TraceContextTextMapPropagator()
        self._trace = trace
        self._no_parent = Context()
        self.shows_sql = os.environ.get(WITH_SQL) == "1"

    def begin(self, name: str, metadata: Iterable[tuple[str, Any]]) -> Span:
        """Begin the span of a call, below the one that its metadata names, if any."""
        carrier = {key: value for key, value in metadata if key in _HEADERS}
        parent = self._propagator.extract(carrier) if carrier else self._no_parent
        return self._tracer.start_span(name, parent, self._trace.SpanKind.SERVER)

    def add_child(
        self, parent: Span, name: str, began: int, ended: int, attributes: Attributes
    ) -> None:
        """Add a span that has ended. Instants are nanoseconds since 1970."""
        context = self._trace.set_span_in_context(parent, self._no_parent)
        span = self._tracer.start_span(name, context, attributes=dict(attributes), start_time=began)
        span.end(ended)

    @contextmanager
    def span(self, name: str) -> Iterator[Span]:
        """Yield the first span of a trace, which ends with the block. An error is recorded."""
        span = self._tracer.start_span(name, self._no_parent)
        try:
            yield span
        except Exception as error:
            fail(span, type(error).__name__)
            raise
        finally:
            span.end()

    def stages(self, parent: Span) -> Callable[[str], AbstractContextManager[None]]:
        """Return a function that makes a block a span below another one, by the stage's name."""

        @contextmanager
        def stage(name: str) -> Iterator[None]:
            began = time.time_ns()
            try:
                yield
            finally:
                self.add_child(parent, f"psoup.{name}", began, time.time_ns(), {})

        return stage

    def close(self) -> None:
        """Send what is left, if the receiver takes it soon."""
        # The exporter retries for longer than the end of a process may take.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_FLUSH_SECONDS)


def fail(span: Span, reason: str) -> None:
    """Mark a span as failed."""
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, reason))


def trace_id_of(span: Span) -> str:
    """Return the id of a span's trace, as 32 hexadecimal digits."""
    return f"{span.get_span_context().trace_id:032x}"
