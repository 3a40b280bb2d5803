"""Errors as `application/problem+json`, and the one table of HTTP statuses."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import grpc
from google.rpc import status_pb2

from psoup.server.status_codes import status_for
from psoup.v1 import psoup_pb2 as pb
from psoup.web.exchange import Headers, Response
from psoup.web.plain_messages import plain_value

PROBLEM = "application/problem+json"

_Code = grpc.StatusCode
_BY_CODE = {
    _Code.CANCELLED: 499,
    _Code.INVALID_ARGUMENT: 400,
    _Code.OUT_OF_RANGE: 400,
    _Code.UNAUTHENTICATED: 401,
    _Code.PERMISSION_DENIED: 403,
    _Code.NOT_FOUND: 404,
    _Code.ALREADY_EXISTS: 409,
    _Code.FAILED_PRECONDITION: 409,
    _Code.ABORTED: 409,
    _Code.RESOURCE_EXHAUSTED: 429,
    _Code.UNIMPLEMENTED: 501,
    _Code.UNAVAILABLE: 503,
    _Code.DEADLINE_EXCEEDED: 504,
}
_STATUSES = {code.value[0]: status for code, status in _BY_CODE.items()}
# Reasons that HTTP has a better status for.
_BY_REASON = {
    "BATCH_TOO_LARGE": 413,
    "BODY_TOO_LARGE": 413,
    "CROSS_SITE": 403,
    "DISK_FULL": 507,
    "HEADERS_TOO_LARGE": 431,
    "MESSAGE_TOO_LARGE": 413,
    "METHOD_NOT_ALLOWED": 405,
    "NOT_ACCEPTABLE": 406,
    "NO_SUCH_RESOURCE": 404,
    "OLD_HTTP": 505,
    "SEQUENCE_REUSED": 422,
    "SLOW_BODY": 408,
    "TOO_MUCH_WORK": 422,
    "UNSUPPORTED_TYPE": 415,
    "WRONG_HOST": 421,
}
# Statuses of requests that may succeed later.
_WAITING = (429, 503)
# All statuses of problems.
STATUSES = sorted({500, *_BY_CODE.values(), *_BY_REASON.values()})
# Fields of an ErrorDetail that are left out if they say nothing.
_FIELDS = ("line", "column", "excerpt", "row", "field", "expected", "got", "hint", "trace_id")


class RefusedCall(Exception):
    """A call that was refused, with its status as gRPC would send it."""

    def __init__(self, status: status_pb2.Status) -> None:
        super().__init__(status.message)
        self.status = status
        self.detail = pb.ErrorDetail()
        if status.details:
            status.details[0].Unpack(self.detail)

    @classmethod
    def by(cls, error: Exception, store_id: str) -> RefusedCall:
        """Return the refusal that an error is."""
        return error if isinstance(error, cls) else cls(status_for(error, store_id))

    @property
    def http_status(self) -> int:
        return _BY_REASON.get(self.detail.reason) or _STATUSES.get(self.status.code, 500)

    def problem(self) -> dict[str, Any]:
        """Return the problem as RFC 9457 has it, with the fields of ErrorDetail."""
        detail = self.detail
        problem: dict[str, Any] = {
            "type": f"urn:psoup:error:{detail.reason}",
            "title": self.status.message.partition("\n")[0],
            "status": self.http_status,
            "detail": self.status.message,
            "reason": detail.reason,
        }
        for name in _FIELDS:
            value = getattr(detail, name)
            if value >= 0 if name == "row" else value:
                problem[name] = value
        if (seconds := self.retry_seconds) is not None:
            problem["retry_after_seconds"] = seconds
        if detail.HasField("current"):
            values = map(plain_value, detail.current.rows[0].values)
            problem["current"] = dict(zip(detail.current.columns, values, strict=True))
        return {**problem, "store_id": detail.store_id}

    @property
    def retry_seconds(self) -> int | None:
        """How long to wait before the next try, if that helps."""
        if not self.detail.HasField("retry_after"):
            return None
        return max(1, math.ceil(self.detail.retry_after.ToMicroseconds() / 10**6))

    def response(self, extra: Mapping[str, str] | None = None) -> Response:
        headers: Headers = [("content-type", PROBLEM), ("cache-control", "no-store")]
        if self.http_status == 401:
            headers.append(("www-authenticate", 'Bearer realm="psoup"'))
        if self.http_status in _WAITING and (seconds := self.retry_seconds) is not None:
            headers.append(("retry-after", str(seconds)))
        headers += (extra or {}).items()
        body = f"{json.dumps(self.problem(), ensure_ascii=False)}\n".encode()
        return Response(self.http_status, headers, body)
