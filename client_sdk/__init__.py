"""The client of a PSoup store: register queries, publish rows, go away, come back and ask.

    from client_sdk import Client

    with Client("localhost:7181") as client:
        client.define("CREATE STREAM trades (symbol TEXT, price DOUBLE, at TIMESTAMP) "
                      "ORDERED BY at RETAIN 30 DAYS")
        dear = client.register("SELECT symbol, price FROM trades WHERE price > 100 "
                               "BEGIN NOW - 10 MINUTES END NOW", key="dear")
        client.publish("trades", [{"symbol": "IBM", "price": 184.5, "at": datetime.now(UTC)}])
        for row in client.invoke(dear):
            print(row)

It knows only the wire, psoup.v1. Everything it raises is a PsoupError, except misuse of the SDK
itself, which is ValueError or TypeError.
"""

from __future__ import annotations

from client_sdk._answer import Answer, AnswerHeader
from client_sdk._async_client import AsyncAnswerStream, AsyncClient
from client_sdk._client import AnswerStream, Client
from client_sdk._clocks import ClockJump, StoreClock
from client_sdk._columns import Column
from client_sdk._exceptions import (
    Conflict,
    ConnectionFailed,
    CopyError,
    ErrorDetail,
    FileBusy,
    FileDamaged,
    FileFull,
    ForeignAnswer,
    InvalidRequest,
    LimitExceeded,
    LocalQueryProblem,
    NotComputable,
    NotFound,
    NotSynced,
    OtherStore,
    PreconditionFailed,
    PsoupError,
    QueryProblem,
    RowProblem,
    ServerError,
    Timeout,
    UnknownCopy,
    WrongFile,
)
from client_sdk._explanation import ExplainedRun, Explanation, Factor, StoredMatches
from client_sdk._losses import LostRows
from client_sdk._mock import MockTransport, answer
from client_sdk._models import (
    Definition,
    EngineStatus,
    Published,
    Registered,
    RegisteredMany,
    Registration,
    StoreLimits,
    StoreStatus,
    Stream,
)
from client_sdk._publisher import AsyncPublisher, Publisher
from client_sdk._publishing import PublishedMany
from client_sdk._requests import SEEN, Knowledge
from client_sdk._retry import Retry
from client_sdk._target import DEFAULT_TARGET
from client_sdk._transport import AsyncTransport, Transport
from client_sdk.copies import (
    Change,
    Copies,
    Copy,
    CopyState,
    Doubtful,
    Queued,
    Recovered,
    Rejected,
    Sent,
    Synced,
)
from client_sdk.pulls import (
    BadPull,
    Hook,
    HookFailed,
    Incomplete,
    OutputBusy,
    OutputFailed,
    Pull,
    Puller,
    PullError,
    PullReport,
    Schedule,
    Store,
    load_pulls,
    pull_many,
    pull_once,
    run_pulls,
)

__all__ = [
    "DEFAULT_TARGET",
    "SEEN",
    "Answer",
    "AnswerHeader",
    "AnswerStream",
    "AsyncAnswerStream",
    "AsyncClient",
    "AsyncPublisher",
    "AsyncTransport",
    "BadPull",
    "Change",
    "Client",
    "ClockJump",
    "Column",
    "Conflict",
    "ConnectionFailed",
    "Copies",
    "Copy",
    "CopyError",
    "CopyState",
    "Definition",
    "Doubtful",
    "EngineStatus",
    "ErrorDetail",
    "ExplainedRun",
    "Explanation",
    "Factor",
    "FileBusy",
    "FileDamaged",
    "FileFull",
    "ForeignAnswer",
    "Hook",
    "HookFailed",
    "Incomplete",
    "InvalidRequest",
    "Knowledge",
    "LimitExceeded",
    "LocalQueryProblem",
    "MockTransport",
    "NotComputable",
    "NotFound",
    "NotSynced",
    "OtherStore",
    "OutputBusy",
    "OutputFailed",
    "PreconditionFailed",
    "PsoupError",
    "Published",
    "PublishedMany",
    "Publisher",
    "Pull",
    "PullError",
    "PullReport",
    "Puller",
    "QueryProblem",
    "Queued",
    "Recovered",
    "Registered",
    "RegisteredMany",
    "Registration",
    "Rejected",
    "Retry",
    "RowProblem",
    "Schedule",
    "Sent",
    "ServerError",
    "Store",
    "StoreClock",
    "StoreLimits",
    "LostRows",
    "StoreStatus",
    "StoredMatches",
    "Stream",
    "Synced",
    "Timeout",
    "Transport",
    "UnknownCopy",
    "WrongFile",
    "answer",
    "load_pulls",
    "pull_many",
    "pull_once",
    "run_pulls",
]
