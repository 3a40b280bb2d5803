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

from client_sdk._async_client import AsyncAnswerStream, AsyncClient
from client_sdk._client import AnswerStream, Client
from client_sdk._credentials import Credentials
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
    PermissionDenied,
    PreconditionFailed,
    PsoupError,
    QueryProblem,
    QuotaExceeded,
    RowProblem,
    ServerError,
    Timeout,
    Unauthenticated,
    UnknownCopy,
    WrongFile,
)
from client_sdk._grpc.effects import Retry
from client_sdk._grpc.transports import AsyncTransport, Transport
from client_sdk._mock import MockTransport, answer
from client_sdk._publishing import AsyncPublisher, PublishedMany, Publisher
from client_sdk._requests import SEEN, Knowledge
from client_sdk._session import DEFAULT_TARGET
from client_sdk._wire.access import AuditRecord, Grant, PublisherRecord, Quota, QuotaLimit
from client_sdk._wire.answers import Answer, AnswerHeader
from client_sdk._wire.explanations import (
    ExplainedLeg,
    ExplainedOperator,
    ExplainedRun,
    ExplainedStep,
    Explanation,
    Factor,
    ImpliedBy,
    StoredMatches,
)
from client_sdk._wire.keys import AccessKey, NewKey
from client_sdk._wire.models import (
    Definition,
    Ended,
    EndedRegistration,
    Published,
    Registered,
    RegisteredMany,
    Registration,
    RegistrationLeg,
    Stream,
    StreamStats,
    View,
)
from client_sdk._wire.status import (
    ClockJump,
    EngineStatus,
    LostRows,
    Quarantined,
    RegistrationWork,
    StoreClock,
    StoreLimits,
    StoreSecurity,
    StoreStatus,
)
from client_sdk._wire.values import Column
from client_sdk.copies import (
    AnswerChange,
    Change,
    ChangeBatch,
    Copies,
    Copy,
    CopyState,
    Doubtful,
    Queued,
    Recovered,
    Rejected,
    Sent,
    Synced,
    Verified,
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
    "AccessKey",
    "Answer",
    "AnswerHeader",
    "AnswerStream",
    "AsyncAnswerStream",
    "AsyncClient",
    "AsyncPublisher",
    "AsyncTransport",
    "AuditRecord",
    "BadPull",
    "AnswerChange",
    "Change",
    "ChangeBatch",
    "Client",
    "ClockJump",
    "Column",
    "Conflict",
    "ConnectionFailed",
    "Copies",
    "Copy",
    "CopyError",
    "CopyState",
    "Credentials",
    "Definition",
    "Doubtful",
    "Ended",
    "EndedRegistration",
    "EngineStatus",
    "ErrorDetail",
    "ExplainedLeg",
    "ExplainedOperator",
    "ExplainedRun",
    "ExplainedStep",
    "Explanation",
    "Factor",
    "FileBusy",
    "FileDamaged",
    "FileFull",
    "ForeignAnswer",
    "Grant",
    "Hook",
    "HookFailed",
    "ImpliedBy",
    "Incomplete",
    "InvalidRequest",
    "Knowledge",
    "LimitExceeded",
    "LocalQueryProblem",
    "LostRows",
    "Quarantined",
    "MockTransport",
    "NewKey",
    "NotComputable",
    "NotFound",
    "NotSynced",
    "OtherStore",
    "OutputBusy",
    "OutputFailed",
    "PermissionDenied",
    "PreconditionFailed",
    "PsoupError",
    "Published",
    "PublishedMany",
    "Publisher",
    "PublisherRecord",
    "Pull",
    "PullError",
    "PullReport",
    "Puller",
    "QueryProblem",
    "Quota",
    "QuotaExceeded",
    "QuotaLimit",
    "Queued",
    "Recovered",
    "Registered",
    "RegisteredMany",
    "Registration",
    "RegistrationLeg",
    "RegistrationWork",
    "Rejected",
    "Retry",
    "RowProblem",
    "Schedule",
    "Sent",
    "ServerError",
    "Store",
    "StoreClock",
    "StoreLimits",
    "StoreSecurity",
    "StoreStatus",
    "StoredMatches",
    "Stream",
    "StreamStats",
    "Synced",
    "Timeout",
    "Transport",
    "Unauthenticated",
    "UnknownCopy",
    "Verified",
    "View",
    "WrongFile",
    "answer",
    "load_pulls",
    "pull_many",
    "pull_once",
    "run_pulls",
]
