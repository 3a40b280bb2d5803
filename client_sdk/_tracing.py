"""The span of a call in the caller's own trace, if the program has imported OpenTelemetry."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from client_sdk._credentials import Metadata

_MODULE = "opentelemetry.trace"


@contextmanager
def client_span(method: str) -> Iterator[Metadata]:
    """Yield the metadata that names the span of a call, which ends with the block; none without
    OpenTelemetry. The span is `psoup.METHOD`, as that of the server below it. The program decides
    what is sampled, and where spans go."""
    trace = sys.modules.get(_MODULE)
    if trace is None:
        yield ()
        return
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    span = trace.get_tracer("psoup.client").start_span(
        f"psoup.{method}", kind=trace.SpanKind.CLIENT
    )
    # The span is not made the current one: a stream may end in another context than it began.
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, trace.set_span_in_context(span))
    try:
        yield tuple(carrier.items())
    except Exception as error:
        span.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
        raise
    finally:
        span.end()
