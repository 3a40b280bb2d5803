import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UpdatePattern(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UPDATE_PATTERN_UNSPECIFIED: _ClassVar[UpdatePattern]
    UPDATE_PATTERN_MON: _ClassVar[UpdatePattern]
    UPDATE_PATTERN_WKS: _ClassVar[UpdatePattern]
    UPDATE_PATTERN_WK: _ClassVar[UpdatePattern]
    UPDATE_PATTERN_STR: _ClassVar[UpdatePattern]

class Encoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENCODING_UNSPECIFIED: _ClassVar[Encoding]
    ENCODING_ARROW: _ClassVar[Encoding]

class Knowledge(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KNOWLEDGE_UNSPECIFIED: _ClassVar[Knowledge]
    KNOWLEDGE_TODAY: _ClassVar[Knowledge]

class SyncMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SYNC_MODE_UNSPECIFIED: _ClassVar[SyncMode]
    SYNC_MODE_WHOLE: _ClassVar[SyncMode]

class SyncReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SYNC_REASON_UNSPECIFIED: _ClassVar[SyncReason]
    SYNC_REASON_FIRST: _ClassVar[SyncReason]
    SYNC_REASON_ASKED: _ClassVar[SyncReason]
    SYNC_REASON_SMALLER: _ClassVar[SyncReason]
    SYNC_REASON_UNREADABLE_TOKEN: _ClassVar[SyncReason]
    SYNC_REASON_FOREIGN_TOKEN: _ClassVar[SyncReason]
    SYNC_REASON_OTHER_REGISTRATION: _ClassVar[SyncReason]
    SYNC_REASON_OTHER_WINDOW: _ClassVar[SyncReason]
    SYNC_REASON_RETENTION: _ClassVar[SyncReason]
    SYNC_REASON_TARGET_GONE: _ClassVar[SyncReason]
    SYNC_REASON_REPLACED: _ClassVar[SyncReason]
    SYNC_REASON_PERMISSION: _ClassVar[SyncReason]
    SYNC_REASON_ERASED: _ClassVar[SyncReason]

class DigestOf(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DIGEST_OF_UNSPECIFIED: _ClassVar[DigestOf]
    DIGEST_OF_CHECKSUMS: _ClassVar[DigestOf]

class SkippedPoints(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SKIPPED_POINTS_UNSPECIFIED: _ClassVar[SkippedPoints]
    SKIPPED_POINTS_RETENTION: _ClassVar[SkippedPoints]
    SKIPPED_POINTS_TOO_MANY: _ClassVar[SkippedPoints]
    SKIPPED_POINTS_NO_COPY: _ClassVar[SkippedPoints]

class JoinMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOIN_METHOD_UNSPECIFIED: _ClassVar[JoinMethod]
    JOIN_METHOD_EQUALITY: _ClassVar[JoinMethod]
    JOIN_METHOD_RANGE: _ClassVar[JoinMethod]
    JOIN_METHOD_PAIRS: _ClassVar[JoinMethod]

class IndexMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INDEX_METHOD_UNSPECIFIED: _ClassVar[IndexMethod]
    INDEX_METHOD_HASH_TABLE: _ClassVar[IndexMethod]
    INDEX_METHOD_PATTERN_TABLE: _ClassVar[IndexMethod]
    INDEX_METHOD_ANY_OF: _ClassVar[IndexMethod]
    INDEX_METHOD_GRID: _ClassVar[IndexMethod]
    INDEX_METHOD_EVERY_BOX: _ClassVar[IndexMethod]
    INDEX_METHOD_BITMAPS: _ClassVar[IndexMethod]
    INDEX_METHOD_BY_ITSELF: _ClassVar[IndexMethod]

class Access(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCESS_UNSPECIFIED: _ClassVar[Access]
    ACCESS_LOOKED_UP: _ClassVar[Access]
    ACCESS_SEARCHED: _ClassVar[Access]
    ACCESS_COMPARED: _ClassVar[Access]
    ACCESS_EVALUATED: _ClassVar[Access]
UPDATE_PATTERN_UNSPECIFIED: UpdatePattern
UPDATE_PATTERN_MON: UpdatePattern
UPDATE_PATTERN_WKS: UpdatePattern
UPDATE_PATTERN_WK: UpdatePattern
UPDATE_PATTERN_STR: UpdatePattern
ENCODING_UNSPECIFIED: Encoding
ENCODING_ARROW: Encoding
KNOWLEDGE_UNSPECIFIED: Knowledge
KNOWLEDGE_TODAY: Knowledge
SYNC_MODE_UNSPECIFIED: SyncMode
SYNC_MODE_WHOLE: SyncMode
SYNC_REASON_UNSPECIFIED: SyncReason
SYNC_REASON_FIRST: SyncReason
SYNC_REASON_ASKED: SyncReason
SYNC_REASON_SMALLER: SyncReason
SYNC_REASON_UNREADABLE_TOKEN: SyncReason
SYNC_REASON_FOREIGN_TOKEN: SyncReason
SYNC_REASON_OTHER_REGISTRATION: SyncReason
SYNC_REASON_OTHER_WINDOW: SyncReason
SYNC_REASON_RETENTION: SyncReason
SYNC_REASON_TARGET_GONE: SyncReason
SYNC_REASON_REPLACED: SyncReason
SYNC_REASON_PERMISSION: SyncReason
SYNC_REASON_ERASED: SyncReason
DIGEST_OF_UNSPECIFIED: DigestOf
DIGEST_OF_CHECKSUMS: DigestOf
SKIPPED_POINTS_UNSPECIFIED: SkippedPoints
SKIPPED_POINTS_RETENTION: SkippedPoints
SKIPPED_POINTS_TOO_MANY: SkippedPoints
SKIPPED_POINTS_NO_COPY: SkippedPoints
JOIN_METHOD_UNSPECIFIED: JoinMethod
JOIN_METHOD_EQUALITY: JoinMethod
JOIN_METHOD_RANGE: JoinMethod
JOIN_METHOD_PAIRS: JoinMethod
INDEX_METHOD_UNSPECIFIED: IndexMethod
INDEX_METHOD_HASH_TABLE: IndexMethod
INDEX_METHOD_PATTERN_TABLE: IndexMethod
INDEX_METHOD_ANY_OF: IndexMethod
INDEX_METHOD_GRID: IndexMethod
INDEX_METHOD_EVERY_BOX: IndexMethod
INDEX_METHOD_BITMAPS: IndexMethod
INDEX_METHOD_BY_ITSELF: IndexMethod
ACCESS_UNSPECIFIED: Access
ACCESS_LOOKED_UP: Access
ACCESS_SEARCHED: Access
ACCESS_COMPARED: Access
ACCESS_EVALUATED: Access

class DefineRequest(_message.Message):
    __slots__ = ("tenant", "owner", "sql", "validate_only", "checksum")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    owner: str
    sql: str
    validate_only: bool
    checksum: int
    def __init__(self, tenant: _Optional[str] = ..., owner: _Optional[str] = ..., sql: _Optional[str] = ..., validate_only: _Optional[bool] = ..., checksum: _Optional[int] = ...) -> None: ...

class DefineResponse(_message.Message):
    __slots__ = ("stream", "position", "notes", "view", "ended", "function")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    stream: Stream
    position: bytes
    notes: _containers.RepeatedScalarFieldContainer[str]
    view: View
    ended: Ended
    function: Function
    def __init__(self, stream: _Optional[_Union[Stream, _Mapping]] = ..., position: _Optional[bytes] = ..., notes: _Optional[_Iterable[str]] = ..., view: _Optional[_Union[View, _Mapping]] = ..., ended: _Optional[_Union[Ended, _Mapping]] = ..., function: _Optional[_Union[Function, _Mapping]] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("views", "policies", "grants", "registrations", "policy_count", "grant_count", "registration_count", "view_count")
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    REGISTRATIONS_FIELD_NUMBER: _ClassVar[int]
    POLICY_COUNT_FIELD_NUMBER: _ClassVar[int]
    GRANT_COUNT_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    VIEW_COUNT_FIELD_NUMBER: _ClassVar[int]
    views: _containers.RepeatedScalarFieldContainer[str]
    policies: _containers.RepeatedScalarFieldContainer[str]
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    registrations: _containers.RepeatedCompositeFieldContainer[EndedRegistration]
    policy_count: int
    grant_count: int
    registration_count: int
    view_count: int
    def __init__(self, views: _Optional[_Iterable[str]] = ..., policies: _Optional[_Iterable[str]] = ..., grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ..., registrations: _Optional[_Iterable[_Union[EndedRegistration, _Mapping]]] = ..., policy_count: _Optional[int] = ..., grant_count: _Optional[int] = ..., registration_count: _Optional[int] = ..., view_count: _Optional[int] = ...) -> None: ...

class EndedRegistration(_message.Message):
    __slots__ = ("handle", "owner", "client_key")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_KEY_FIELD_NUMBER: _ClassVar[int]
    handle: bytes
    owner: str
    client_key: str
    def __init__(self, handle: _Optional[bytes] = ..., owner: _Optional[str] = ..., client_key: _Optional[str] = ...) -> None: ...

class Stream(_message.Message):
    __slots__ = ("name", "id", "columns", "ordered_by", "retain", "ahead", "row_count", "now", "sql", "registration_count", "key", "policies", "stats", "dropped", "by_clock")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ORDERED_BY_FIELD_NUMBER: _ClassVar[int]
    RETAIN_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    BY_CLOCK_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: int
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    ordered_by: str
    retain: _duration_pb2.Duration
    ahead: _duration_pb2.Duration
    row_count: int
    now: _timestamp_pb2.Timestamp
    sql: str
    registration_count: int
    key: _containers.RepeatedScalarFieldContainer[str]
    policies: _containers.RepeatedScalarFieldContainer[str]
    stats: StreamStats
    dropped: _containers.RepeatedScalarFieldContainer[str]
    by_clock: bool
    def __init__(self, name: _Optional[str] = ..., id: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., ordered_by: _Optional[str] = ..., retain: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., ahead: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., row_count: _Optional[int] = ..., now: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sql: _Optional[str] = ..., registration_count: _Optional[int] = ..., key: _Optional[_Iterable[str]] = ..., policies: _Optional[_Iterable[str]] = ..., stats: _Optional[_Union[StreamStats, _Mapping]] = ..., dropped: _Optional[_Iterable[str]] = ..., by_clock: _Optional[bool] = ...) -> None: ...

class StreamStats(_message.Message):
    __slots__ = ("log_bytes", "stem_bytes", "match_bytes", "behind_rows", "behind", "late_rows", "last_leap")
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    STEM_BYTES_FIELD_NUMBER: _ClassVar[int]
    MATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    BEHIND_ROWS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    LATE_ROWS_FIELD_NUMBER: _ClassVar[int]
    LAST_LEAP_FIELD_NUMBER: _ClassVar[int]
    log_bytes: int
    stem_bytes: int
    match_bytes: int
    behind_rows: int
    behind: _duration_pb2.Duration
    late_rows: int
    last_leap: NowLeap
    def __init__(self, log_bytes: _Optional[int] = ..., stem_bytes: _Optional[int] = ..., match_bytes: _Optional[int] = ..., behind_rows: _Optional[int] = ..., behind: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., late_rows: _Optional[int] = ..., last_leap: _Optional[_Union[NowLeap, _Mapping]] = ...) -> None: ...

class StreamTime(_message.Message):
    __slots__ = ("tenant", "stream", "late_rows", "last_leap")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    LATE_ROWS_FIELD_NUMBER: _ClassVar[int]
    LAST_LEAP_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    stream: str
    late_rows: int
    last_leap: NowLeap
    def __init__(self, tenant: _Optional[str] = ..., stream: _Optional[str] = ..., late_rows: _Optional[int] = ..., last_leap: _Optional[_Union[NowLeap, _Mapping]] = ...) -> None: ...

class NowLeap(_message.Message):
    __slots__ = ("owner", "publisher", "now", "at")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    owner: str
    publisher: str
    now: _timestamp_pb2.Timestamp
    at: _timestamp_pb2.Timestamp
    def __init__(self, owner: _Optional[str] = ..., publisher: _Optional[str] = ..., now: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("name", "type", "optional", "default", "former")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    OPTIONAL_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    optional: bool
    default: Value
    former: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., optional: _Optional[bool] = ..., default: _Optional[_Union[Value, _Mapping]] = ..., former: _Optional[_Iterable[str]] = ...) -> None: ...

class ListStreamsRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class ListStreamsResponse(_message.Message):
    __slots__ = ("streams",)
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    streams: _containers.RepeatedCompositeFieldContainer[Stream]
    def __init__(self, streams: _Optional[_Iterable[_Union[Stream, _Mapping]]] = ...) -> None: ...

class DescribeStreamRequest(_message.Message):
    __slots__ = ("tenant", "name", "as_of")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    name: str
    as_of: bytes
    def __init__(self, tenant: _Optional[str] = ..., name: _Optional[str] = ..., as_of: _Optional[bytes] = ...) -> None: ...

class View(_message.Message):
    __slots__ = ("name", "id", "columns", "sql", "over")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: int
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    sql: str
    over: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., id: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., sql: _Optional[str] = ..., over: _Optional[_Iterable[str]] = ...) -> None: ...

class Function(_message.Message):
    __slots__ = ("name", "id", "parameters", "type", "sql", "over")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: int
    parameters: _containers.RepeatedCompositeFieldContainer[Column]
    type: str
    sql: str
    over: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., id: _Optional[int] = ..., parameters: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., type: _Optional[str] = ..., sql: _Optional[str] = ..., over: _Optional[_Iterable[str]] = ...) -> None: ...

class ListViewsRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class ListViewsResponse(_message.Message):
    __slots__ = ("views", "functions")
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    FUNCTIONS_FIELD_NUMBER: _ClassVar[int]
    views: _containers.RepeatedCompositeFieldContainer[View]
    functions: _containers.RepeatedCompositeFieldContainer[Function]
    def __init__(self, views: _Optional[_Iterable[_Union[View, _Mapping]]] = ..., functions: _Optional[_Iterable[_Union[Function, _Mapping]]] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("tenant", "owner", "client_key", "sql", "parameters", "lease", "replace", "checksum")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    TENANT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_KEY_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    owner: str
    client_key: str
    sql: str
    parameters: _containers.MessageMap[str, Value]
    lease: _duration_pb2.Duration
    replace: bool
    checksum: int
    def __init__(self, tenant: _Optional[str] = ..., owner: _Optional[str] = ..., client_key: _Optional[str] = ..., sql: _Optional[str] = ..., parameters: _Optional[_Mapping[str, Value]] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., replace: _Optional[bool] = ..., checksum: _Optional[int] = ...) -> None: ...

class RegisterResponse(_message.Message):
    __slots__ = ("handle", "position", "created", "columns", "notes", "pattern", "lease_until", "replaced")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    handle: bytes
    position: bytes
    created: bool
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    notes: _containers.RepeatedScalarFieldContainer[str]
    pattern: UpdatePattern
    lease_until: _timestamp_pb2.Timestamp
    replaced: bool
    def __init__(self, handle: _Optional[bytes] = ..., position: _Optional[bytes] = ..., created: _Optional[bool] = ..., columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., notes: _Optional[_Iterable[str]] = ..., pattern: _Optional[_Union[UpdatePattern, str]] = ..., lease_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., replaced: _Optional[bool] = ...) -> None: ...

class RegisterManyRequest(_message.Message):
    __slots__ = ("tenant", "owner", "sql", "arrow", "rows", "lease", "replace", "checksum")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    owner: str
    sql: str
    arrow: bytes
    rows: Rows
    lease: _duration_pb2.Duration
    replace: bool
    checksum: int
    def __init__(self, tenant: _Optional[str] = ..., owner: _Optional[str] = ..., sql: _Optional[str] = ..., arrow: _Optional[bytes] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., replace: _Optional[bool] = ..., checksum: _Optional[int] = ...) -> None: ...

class RegisterManyResponse(_message.Message):
    __slots__ = ("handles", "position", "created_count", "replaced_count")
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CREATED_COUNT_FIELD_NUMBER: _ClassVar[int]
    REPLACED_COUNT_FIELD_NUMBER: _ClassVar[int]
    handles: _containers.RepeatedScalarFieldContainer[bytes]
    position: bytes
    created_count: int
    replaced_count: int
    def __init__(self, handles: _Optional[_Iterable[bytes]] = ..., position: _Optional[bytes] = ..., created_count: _Optional[int] = ..., replaced_count: _Optional[int] = ...) -> None: ...

class UnregisterRequest(_message.Message):
    __slots__ = ("tenant", "handle", "checksum")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    handle: bytes
    checksum: int
    def __init__(self, tenant: _Optional[str] = ..., handle: _Optional[bytes] = ..., checksum: _Optional[int] = ...) -> None: ...

class UnregisterResponse(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: bytes
    def __init__(self, position: _Optional[bytes] = ...) -> None: ...

class ListRegistrationsRequest(_message.Message):
    __slots__ = ("tenant", "owner", "page_size", "page_token", "stream", "contains")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    CONTAINS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    owner: str
    page_size: int
    page_token: str
    stream: str
    contains: str
    def __init__(self, tenant: _Optional[str] = ..., owner: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., stream: _Optional[str] = ..., contains: _Optional[str] = ...) -> None: ...

class ListRegistrationsResponse(_message.Message):
    __slots__ = ("registrations", "next_page_token")
    REGISTRATIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    registrations: _containers.RepeatedCompositeFieldContainer[Registration]
    next_page_token: str
    def __init__(self, registrations: _Optional[_Iterable[_Union[Registration, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DescribeRegistrationRequest(_message.Message):
    __slots__ = ("tenant", "handle")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    handle: bytes
    def __init__(self, tenant: _Optional[str] = ..., handle: _Optional[bytes] = ...) -> None: ...

class Registration(_message.Message):
    __slots__ = ("handle", "owner", "client_key", "sql", "parameters", "stream", "window", "columns", "lease", "position", "registered_at", "matched_rows", "stream_rows", "refresh", "pattern", "lease_until", "legs", "views")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_KEY_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_FIELD_NUMBER: _ClassVar[int]
    MATCHED_ROWS_FIELD_NUMBER: _ClassVar[int]
    STREAM_ROWS_FIELD_NUMBER: _ClassVar[int]
    REFRESH_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    LEGS_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    handle: bytes
    owner: str
    client_key: str
    sql: str
    parameters: _containers.MessageMap[str, Value]
    stream: str
    window: str
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    lease: _duration_pb2.Duration
    position: bytes
    registered_at: _timestamp_pb2.Timestamp
    matched_rows: int
    stream_rows: int
    refresh: str
    pattern: UpdatePattern
    lease_until: _timestamp_pb2.Timestamp
    legs: _containers.RepeatedCompositeFieldContainer[RegistrationLeg]
    views: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, handle: _Optional[bytes] = ..., owner: _Optional[str] = ..., client_key: _Optional[str] = ..., sql: _Optional[str] = ..., parameters: _Optional[_Mapping[str, Value]] = ..., stream: _Optional[str] = ..., window: _Optional[str] = ..., columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., position: _Optional[bytes] = ..., registered_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., matched_rows: _Optional[int] = ..., stream_rows: _Optional[int] = ..., refresh: _Optional[str] = ..., pattern: _Optional[_Union[UpdatePattern, str]] = ..., lease_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., legs: _Optional[_Iterable[_Union[RegistrationLeg, _Mapping]]] = ..., views: _Optional[_Iterable[str]] = ...) -> None: ...

class RegistrationLeg(_message.Message):
    __slots__ = ("stream", "window", "matched_rows", "stream_rows")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    MATCHED_ROWS_FIELD_NUMBER: _ClassVar[int]
    STREAM_ROWS_FIELD_NUMBER: _ClassVar[int]
    stream: str
    window: str
    matched_rows: int
    stream_rows: int
    def __init__(self, stream: _Optional[str] = ..., window: _Optional[str] = ..., matched_rows: _Optional[int] = ..., stream_rows: _Optional[int] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("boolean", "bigint", "double", "decimal", "text", "timestamp", "date")
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    BIGINT_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_FIELD_NUMBER: _ClassVar[int]
    DECIMAL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DATE_FIELD_NUMBER: _ClassVar[int]
    boolean: bool
    bigint: int
    double: float
    decimal: str
    text: str
    timestamp: _timestamp_pb2.Timestamp
    date: str
    def __init__(self, boolean: _Optional[bool] = ..., bigint: _Optional[int] = ..., double: _Optional[float] = ..., decimal: _Optional[str] = ..., text: _Optional[str] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., date: _Optional[str] = ...) -> None: ...

class Row(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("columns", "rows")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedScalarFieldContainer[str]
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    def __init__(self, columns: _Optional[_Iterable[str]] = ..., rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("tenant", "stream", "publisher", "sequence", "arrow", "rows", "heartbeat", "owner", "mark", "publisher_lease", "checksum")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_LEASE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    stream: str
    publisher: str
    sequence: int
    arrow: bytes
    rows: Rows
    heartbeat: _timestamp_pb2.Timestamp
    owner: str
    mark: bytes
    publisher_lease: _duration_pb2.Duration
    checksum: int
    def __init__(self, tenant: _Optional[str] = ..., stream: _Optional[str] = ..., publisher: _Optional[str] = ..., sequence: _Optional[int] = ..., arrow: _Optional[bytes] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ..., heartbeat: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., owner: _Optional[str] = ..., mark: _Optional[bytes] = ..., publisher_lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., checksum: _Optional[int] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("position", "row_count", "first_row_id", "duplicate", "unverified")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_ID_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    UNVERIFIED_FIELD_NUMBER: _ClassVar[int]
    position: bytes
    row_count: int
    first_row_id: int
    duplicate: bool
    unverified: bool
    def __init__(self, position: _Optional[bytes] = ..., row_count: _Optional[int] = ..., first_row_id: _Optional[int] = ..., duplicate: _Optional[bool] = ..., unverified: _Optional[bool] = ...) -> None: ...

class ListPublishersRequest(_message.Message):
    __slots__ = ("tenant", "owner", "prefix", "page_size", "page_token")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    owner: str
    prefix: str
    page_size: int
    page_token: str
    def __init__(self, tenant: _Optional[str] = ..., owner: _Optional[str] = ..., prefix: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListPublishersResponse(_message.Message):
    __slots__ = ("publishers", "next_page_token")
    PUBLISHERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    publishers: _containers.RepeatedCompositeFieldContainer[Publisher]
    next_page_token: str
    def __init__(self, publishers: _Optional[_Iterable[_Union[Publisher, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Publisher(_message.Message):
    __slots__ = ("owner", "name", "sequence", "position", "published_at", "mark", "row_count", "lease")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    owner: str
    name: str
    sequence: int
    position: bytes
    published_at: _timestamp_pb2.Timestamp
    mark: bytes
    row_count: int
    lease: _duration_pb2.Duration
    def __init__(self, owner: _Optional[str] = ..., name: _Optional[str] = ..., sequence: _Optional[int] = ..., position: _Optional[bytes] = ..., published_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., mark: _Optional[bytes] = ..., row_count: _Optional[int] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ForgetPublishersRequest(_message.Message):
    __slots__ = ("tenant", "owner", "names")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    owner: str
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tenant: _Optional[str] = ..., owner: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class ForgetPublishersResponse(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: bytes
    def __init__(self, position: _Optional[bytes] = ...) -> None: ...

class InvokeRequest(_message.Message):
    __slots__ = ("tenant", "handle", "window", "as_of", "knowledge", "least_position", "encoding", "wait_for_engine", "unrefreshed", "latest", "one_message")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    KNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    LEAST_POSITION_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    WAIT_FOR_ENGINE_FIELD_NUMBER: _ClassVar[int]
    UNREFRESHED_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    ONE_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    handle: bytes
    window: str
    as_of: _timestamp_pb2.Timestamp
    knowledge: Knowledge
    least_position: bytes
    encoding: Encoding
    wait_for_engine: bool
    unrefreshed: bool
    latest: bool
    one_message: bool
    def __init__(self, tenant: _Optional[str] = ..., handle: _Optional[bytes] = ..., window: _Optional[str] = ..., as_of: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., knowledge: _Optional[_Union[Knowledge, str]] = ..., least_position: _Optional[bytes] = ..., encoding: _Optional[_Union[Encoding, str]] = ..., wait_for_engine: _Optional[bool] = ..., unrefreshed: _Optional[bool] = ..., latest: _Optional[bool] = ..., one_message: _Optional[bool] = ...) -> None: ...

class AskRequest(_message.Message):
    __slots__ = ("tenant", "sql", "parameters", "as_of", "knowledge", "least_position", "encoding", "unrefreshed", "latest", "one_message")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    KNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    LEAST_POSITION_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    UNREFRESHED_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    ONE_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    sql: str
    parameters: _containers.MessageMap[str, Value]
    as_of: _timestamp_pb2.Timestamp
    knowledge: Knowledge
    least_position: bytes
    encoding: Encoding
    unrefreshed: bool
    latest: bool
    one_message: bool
    def __init__(self, tenant: _Optional[str] = ..., sql: _Optional[str] = ..., parameters: _Optional[_Mapping[str, Value]] = ..., as_of: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., knowledge: _Optional[_Union[Knowledge, str]] = ..., least_position: _Optional[bytes] = ..., encoding: _Optional[_Union[Encoding, str]] = ..., unrefreshed: _Optional[bool] = ..., latest: _Optional[bool] = ..., one_message: _Optional[bool] = ...) -> None: ...

class InvokeResponse(_message.Message):
    __slots__ = ("header", "rows", "arrow", "all_rows", "all_arrow")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    ALL_ROWS_FIELD_NUMBER: _ClassVar[int]
    ALL_ARROW_FIELD_NUMBER: _ClassVar[int]
    header: AnswerHeader
    rows: Rows
    arrow: bytes
    all_rows: Rows
    all_arrow: bytes
    def __init__(self, header: _Optional[_Union[AnswerHeader, _Mapping]] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ..., arrow: _Optional[bytes] = ..., all_rows: _Optional[_Union[Rows, _Mapping]] = ..., all_arrow: _Optional[bytes] = ...) -> None: ...

class AnswerHeader(_message.Message):
    __slots__ = ("position", "now", "window_begin", "window_end", "row_count", "columns", "computed_rows", "epoch", "behind_rows", "behind", "elapsed", "notes", "refreshed_at", "complete_until", "latest", "full_at", "joined_pairs")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    WINDOW_BEGIN_FIELD_NUMBER: _ClassVar[int]
    WINDOW_END_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_ROWS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BEHIND_ROWS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    REFRESHED_AT_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    FULL_AT_FIELD_NUMBER: _ClassVar[int]
    JOINED_PAIRS_FIELD_NUMBER: _ClassVar[int]
    position: bytes
    now: _timestamp_pb2.Timestamp
    window_begin: _timestamp_pb2.Timestamp
    window_end: _timestamp_pb2.Timestamp
    row_count: int
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    computed_rows: int
    epoch: int
    behind_rows: int
    behind: _duration_pb2.Duration
    elapsed: _duration_pb2.Duration
    notes: _containers.RepeatedScalarFieldContainer[str]
    refreshed_at: _timestamp_pb2.Timestamp
    complete_until: _timestamp_pb2.Timestamp
    latest: _timestamp_pb2.Timestamp
    full_at: _timestamp_pb2.Timestamp
    joined_pairs: int
    def __init__(self, position: _Optional[bytes] = ..., now: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., window_begin: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., window_end: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., row_count: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., computed_rows: _Optional[int] = ..., epoch: _Optional[int] = ..., behind_rows: _Optional[int] = ..., behind: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., elapsed: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., notes: _Optional[_Iterable[str]] = ..., refreshed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., complete_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., latest: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., full_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., joined_pairs: _Optional[int] = ...) -> None: ...

class SyncRequest(_message.Message):
    __slots__ = ("tenant", "items", "encoding", "byte_budget", "one_position", "away", "least_position")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    BYTE_BUDGET_FIELD_NUMBER: _ClassVar[int]
    ONE_POSITION_FIELD_NUMBER: _ClassVar[int]
    AWAY_FIELD_NUMBER: _ClassVar[int]
    LEAST_POSITION_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    items: _containers.RepeatedCompositeFieldContainer[SyncItem]
    encoding: Encoding
    byte_budget: int
    one_position: bool
    away: _duration_pb2.Duration
    least_position: bytes
    def __init__(self, tenant: _Optional[str] = ..., items: _Optional[_Iterable[_Union[SyncItem, _Mapping]]] = ..., encoding: _Optional[_Union[Encoding, str]] = ..., byte_budget: _Optional[int] = ..., one_position: _Optional[bool] = ..., away: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., least_position: _Optional[bytes] = ...) -> None: ...

class SyncItem(_message.Message):
    __slots__ = ("handle", "token", "window", "priority", "base_rows", "whole", "resend", "have", "changes", "every_point")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    BASE_ROWS_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    RESEND_FIELD_NUMBER: _ClassVar[int]
    HAVE_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    EVERY_POINT_FIELD_NUMBER: _ClassVar[int]
    handle: bytes
    token: bytes
    window: str
    priority: int
    base_rows: bool
    whole: bool
    resend: Ids
    have: Ids
    changes: bool
    every_point: bool
    def __init__(self, handle: _Optional[bytes] = ..., token: _Optional[bytes] = ..., window: _Optional[str] = ..., priority: _Optional[int] = ..., base_rows: _Optional[bool] = ..., whole: _Optional[bool] = ..., resend: _Optional[_Union[Ids, _Mapping]] = ..., have: _Optional[_Union[Ids, _Mapping]] = ..., changes: _Optional[bool] = ..., every_point: _Optional[bool] = ...) -> None: ...

class Ids(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, runs: _Optional[_Iterable[int]] = ...) -> None: ...

class Removed(_message.Message):
    __slots__ = ("runs", "ended")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedScalarFieldContainer[int]
    ended: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, runs: _Optional[_Iterable[int]] = ..., ended: _Optional[_Iterable[int]] = ...) -> None: ...

class SyncPart(_message.Message):
    __slots__ = ("item", "begin", "removed", "rows", "arrow", "resume", "end", "refused", "beat")
    ITEM_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    item: int
    begin: SyncBegin
    removed: Removed
    rows: SyncRows
    arrow: bytes
    resume: bytes
    end: SyncEnd
    refused: SyncRefused
    beat: SyncBeat
    def __init__(self, item: _Optional[int] = ..., begin: _Optional[_Union[SyncBegin, _Mapping]] = ..., removed: _Optional[_Union[Removed, _Mapping]] = ..., rows: _Optional[_Union[SyncRows, _Mapping]] = ..., arrow: _Optional[bytes] = ..., resume: _Optional[bytes] = ..., end: _Optional[_Union[SyncEnd, _Mapping]] = ..., refused: _Optional[_Union[SyncRefused, _Mapping]] = ..., beat: _Optional[_Union[SyncBeat, _Mapping]] = ...) -> None: ...

class SyncBegin(_message.Message):
    __slots__ = ("mode", "continued", "reason", "columns", "pattern", "digest_of", "slides", "keyed", "combined", "zones")
    MODE_FIELD_NUMBER: _ClassVar[int]
    CONTINUED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_OF_FIELD_NUMBER: _ClassVar[int]
    SLIDES_FIELD_NUMBER: _ClassVar[int]
    KEYED_FIELD_NUMBER: _ClassVar[int]
    COMBINED_FIELD_NUMBER: _ClassVar[int]
    ZONES_FIELD_NUMBER: _ClassVar[int]
    mode: SyncMode
    continued: bool
    reason: SyncReason
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    pattern: UpdatePattern
    digest_of: DigestOf
    slides: bool
    keyed: bool
    combined: bool
    zones: _containers.RepeatedCompositeFieldContainer[ZoneRules]
    def __init__(self, mode: _Optional[_Union[SyncMode, str]] = ..., continued: _Optional[bool] = ..., reason: _Optional[_Union[SyncReason, str]] = ..., columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., pattern: _Optional[_Union[UpdatePattern, str]] = ..., digest_of: _Optional[_Union[DigestOf, str]] = ..., slides: _Optional[bool] = ..., keyed: _Optional[bool] = ..., combined: _Optional[bool] = ..., zones: _Optional[_Iterable[_Union[ZoneRules, _Mapping]]] = ...) -> None: ...

class ZoneRules(_message.Message):
    __slots__ = ("name", "version", "starts", "offsets")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    starts: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., starts: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class SyncRows(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[SyncRow]
    def __init__(self, rows: _Optional[_Iterable[_Union[SyncRow, _Mapping]]] = ...) -> None: ...

class SyncRow(_message.Message):
    __slots__ = ("row_id", "visible_from", "visible_until", "checksum", "sort_key", "values", "key")
    ROW_ID_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_FROM_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    SORT_KEY_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    row_id: int
    visible_from: int
    visible_until: int
    checksum: int
    sort_key: bytes
    values: _containers.RepeatedCompositeFieldContainer[Value]
    key: int
    def __init__(self, row_id: _Optional[int] = ..., visible_from: _Optional[int] = ..., visible_until: _Optional[int] = ..., checksum: _Optional[int] = ..., sort_key: _Optional[bytes] = ..., values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ..., key: _Optional[int] = ...) -> None: ...

class SyncEnd(_message.Message):
    __slots__ = ("token", "position", "now", "row_count", "digest", "good_until", "lease_until", "notes", "store_now", "more_points", "skipped_points")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    GOOD_UNTIL_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    STORE_NOW_FIELD_NUMBER: _ClassVar[int]
    MORE_POINTS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_POINTS_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    position: bytes
    now: _timestamp_pb2.Timestamp
    row_count: int
    digest: bytes
    good_until: _timestamp_pb2.Timestamp
    lease_until: _timestamp_pb2.Timestamp
    notes: _containers.RepeatedScalarFieldContainer[str]
    store_now: _timestamp_pb2.Timestamp
    more_points: bool
    skipped_points: SkippedPoints
    def __init__(self, token: _Optional[bytes] = ..., position: _Optional[bytes] = ..., now: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., row_count: _Optional[int] = ..., digest: _Optional[bytes] = ..., good_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., lease_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., notes: _Optional[_Iterable[str]] = ..., store_now: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., more_points: _Optional[bool] = ..., skipped_points: _Optional[_Union[SkippedPoints, str]] = ...) -> None: ...

class SyncRefused(_message.Message):
    __slots__ = ("code", "message", "detail")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    detail: ErrorDetail
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., detail: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...

class SyncBeat(_message.Message):
    __slots__ = ("now",)
    NOW_FIELD_NUMBER: _ClassVar[int]
    now: _timestamp_pb2.Timestamp
    def __init__(self, now: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("sync", "every", "beat", "rounds")
    SYNC_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    sync: SyncRequest
    every: _duration_pb2.Duration
    beat: _duration_pb2.Duration
    rounds: int
    def __init__(self, sync: _Optional[_Union[SyncRequest, _Mapping]] = ..., every: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., beat: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., rounds: _Optional[int] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("tenant", "handle", "window", "sql", "parameters")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    TENANT_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    handle: bytes
    window: str
    sql: str
    parameters: _containers.MessageMap[str, Value]
    def __init__(self, tenant: _Optional[str] = ..., handle: _Optional[bytes] = ..., window: _Optional[str] = ..., sql: _Optional[str] = ..., parameters: _Optional[_Mapping[str, Value]] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("registration_count", "factors", "other_predicates", "compared_predicates", "stored", "matched_rows", "stream_rows", "epoch", "run", "refresh", "legs", "operator", "views", "composite")
    REGISTRATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    FACTORS_FIELD_NUMBER: _ClassVar[int]
    OTHER_PREDICATES_FIELD_NUMBER: _ClassVar[int]
    COMPARED_PREDICATES_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    MATCHED_ROWS_FIELD_NUMBER: _ClassVar[int]
    STREAM_ROWS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    REFRESH_FIELD_NUMBER: _ClassVar[int]
    LEGS_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    COMPOSITE_FIELD_NUMBER: _ClassVar[int]
    registration_count: int
    factors: _containers.RepeatedCompositeFieldContainer[Factor]
    other_predicates: int
    compared_predicates: int
    stored: StoredMatches
    matched_rows: int
    stream_rows: int
    epoch: int
    run: ExplainedRun
    refresh: str
    legs: _containers.RepeatedCompositeFieldContainer[ExplainedLeg]
    operator: ExplainedOperator
    views: _containers.RepeatedScalarFieldContainer[str]
    composite: str
    def __init__(self, registration_count: _Optional[int] = ..., factors: _Optional[_Iterable[_Union[Factor, _Mapping]]] = ..., other_predicates: _Optional[int] = ..., compared_predicates: _Optional[int] = ..., stored: _Optional[_Union[StoredMatches, _Mapping]] = ..., matched_rows: _Optional[int] = ..., stream_rows: _Optional[int] = ..., epoch: _Optional[int] = ..., run: _Optional[_Union[ExplainedRun, _Mapping]] = ..., refresh: _Optional[str] = ..., legs: _Optional[_Iterable[_Union[ExplainedLeg, _Mapping]]] = ..., operator: _Optional[_Union[ExplainedOperator, _Mapping]] = ..., views: _Optional[_Iterable[str]] = ..., composite: _Optional[str] = ...) -> None: ...

class ExplainedLeg(_message.Message):
    __slots__ = ("stream", "window", "registration_count", "factors", "other_predicates", "compared_predicates", "stored", "matched_rows", "stream_rows", "considered_rows", "row_count", "current_rows", "implied_by", "index", "quarantined")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    FACTORS_FIELD_NUMBER: _ClassVar[int]
    OTHER_PREDICATES_FIELD_NUMBER: _ClassVar[int]
    COMPARED_PREDICATES_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    MATCHED_ROWS_FIELD_NUMBER: _ClassVar[int]
    STREAM_ROWS_FIELD_NUMBER: _ClassVar[int]
    CONSIDERED_ROWS_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    CURRENT_ROWS_FIELD_NUMBER: _ClassVar[int]
    IMPLIED_BY_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    stream: str
    window: str
    registration_count: int
    factors: _containers.RepeatedCompositeFieldContainer[Factor]
    other_predicates: int
    compared_predicates: int
    stored: StoredMatches
    matched_rows: int
    stream_rows: int
    considered_rows: int
    row_count: int
    current_rows: int
    implied_by: ImpliedBy
    index: IndexStructure
    quarantined: str
    def __init__(self, stream: _Optional[str] = ..., window: _Optional[str] = ..., registration_count: _Optional[int] = ..., factors: _Optional[_Iterable[_Union[Factor, _Mapping]]] = ..., other_predicates: _Optional[int] = ..., compared_predicates: _Optional[int] = ..., stored: _Optional[_Union[StoredMatches, _Mapping]] = ..., matched_rows: _Optional[int] = ..., stream_rows: _Optional[int] = ..., considered_rows: _Optional[int] = ..., row_count: _Optional[int] = ..., current_rows: _Optional[int] = ..., implied_by: _Optional[_Union[ImpliedBy, _Mapping]] = ..., index: _Optional[_Union[IndexStructure, _Mapping]] = ..., quarantined: _Optional[str] = ...) -> None: ...

class ImpliedBy(_message.Message):
    __slots__ = ("condition", "looked_at_rows", "rows")
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    LOOKED_AT_ROWS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    condition: str
    looked_at_rows: int
    rows: int
    def __init__(self, condition: _Optional[str] = ..., looked_at_rows: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class ExplainedOperator(_message.Message):
    __slots__ = ("name", "detail", "pattern", "inputs", "leg", "first_input", "steps")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    LEG_FIELD_NUMBER: _ClassVar[int]
    FIRST_INPUT_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    name: str
    detail: str
    pattern: UpdatePattern
    inputs: _containers.RepeatedCompositeFieldContainer[ExplainedOperator]
    leg: int
    first_input: int
    steps: _containers.RepeatedCompositeFieldContainer[ExplainedStep]
    def __init__(self, name: _Optional[str] = ..., detail: _Optional[str] = ..., pattern: _Optional[_Union[UpdatePattern, str]] = ..., inputs: _Optional[_Iterable[_Union[ExplainedOperator, _Mapping]]] = ..., leg: _Optional[int] = ..., first_input: _Optional[int] = ..., steps: _Optional[_Iterable[_Union[ExplainedStep, _Mapping]]] = ...) -> None: ...

class ExplainedStep(_message.Message):
    __slots__ = ("input", "method", "joined_rows", "input_rows", "candidate_pairs", "kept_pairs")
    INPUT_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    JOINED_ROWS_FIELD_NUMBER: _ClassVar[int]
    INPUT_ROWS_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_PAIRS_FIELD_NUMBER: _ClassVar[int]
    KEPT_PAIRS_FIELD_NUMBER: _ClassVar[int]
    input: int
    method: JoinMethod
    joined_rows: int
    input_rows: int
    candidate_pairs: int
    kept_pairs: int
    def __init__(self, input: _Optional[int] = ..., method: _Optional[_Union[JoinMethod, str]] = ..., joined_rows: _Optional[int] = ..., input_rows: _Optional[int] = ..., candidate_pairs: _Optional[int] = ..., kept_pairs: _Optional[int] = ...) -> None: ...

class IndexStructure(_message.Message):
    __slots__ = ("method", "operands", "predicate_count", "text")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    OPERANDS_FIELD_NUMBER: _ClassVar[int]
    PREDICATE_COUNT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    method: IndexMethod
    operands: _containers.RepeatedScalarFieldContainer[str]
    predicate_count: int
    text: str
    def __init__(self, method: _Optional[_Union[IndexMethod, str]] = ..., operands: _Optional[_Iterable[str]] = ..., predicate_count: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class Factor(_message.Message):
    __slots__ = ("text", "access", "operand", "constant_count", "shared_by")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    OPERAND_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_COUNT_FIELD_NUMBER: _ClassVar[int]
    SHARED_BY_FIELD_NUMBER: _ClassVar[int]
    text: str
    access: Access
    operand: str
    constant_count: int
    shared_by: int
    def __init__(self, text: _Optional[str] = ..., access: _Optional[_Union[Access, str]] = ..., operand: _Optional[str] = ..., constant_count: _Optional[int] = ..., shared_by: _Optional[int] = ...) -> None: ...

class StoredMatches(_message.Message):
    __slots__ = ("file_count", "piece_count", "block_count", "byte_count", "row_count")
    FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PIECE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    file_count: int
    piece_count: int
    block_count: int
    byte_count: int
    row_count: int
    def __init__(self, file_count: _Optional[int] = ..., piece_count: _Optional[int] = ..., block_count: _Optional[int] = ..., byte_count: _Optional[int] = ..., row_count: _Optional[int] = ...) -> None: ...

class ExplainedRun(_message.Message):
    __slots__ = ("considered_rows", "computed_rows", "answer_rows", "answer_bytes", "stages", "current_rows", "joined_pairs", "stored_combinations")
    CONSIDERED_ROWS_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_ROWS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_ROWS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_BYTES_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    CURRENT_ROWS_FIELD_NUMBER: _ClassVar[int]
    JOINED_PAIRS_FIELD_NUMBER: _ClassVar[int]
    STORED_COMBINATIONS_FIELD_NUMBER: _ClassVar[int]
    considered_rows: int
    computed_rows: int
    answer_rows: int
    answer_bytes: int
    stages: _containers.RepeatedCompositeFieldContainer[Stage]
    current_rows: int
    joined_pairs: int
    stored_combinations: int
    def __init__(self, considered_rows: _Optional[int] = ..., computed_rows: _Optional[int] = ..., answer_rows: _Optional[int] = ..., answer_bytes: _Optional[int] = ..., stages: _Optional[_Iterable[_Union[Stage, _Mapping]]] = ..., current_rows: _Optional[int] = ..., joined_pairs: _Optional[int] = ..., stored_combinations: _Optional[int] = ...) -> None: ...

class Stage(_message.Message):
    __slots__ = ("name", "duration")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    duration: _duration_pb2.Duration
    def __init__(self, name: _Optional[str] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("store_id", "version", "position", "now", "stream_count", "registration_count", "predicate_count", "epoch", "epoch_at", "behind_rows", "behind", "backfill_rows", "cache_bytes", "cache_limit_bytes", "uptime", "limits", "engine", "clock", "holes", "composite_count", "suspended_count", "quotas", "rest_rows", "security", "top_registrations", "quarantine", "stream_times", "server", "server_count")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    STREAM_COUNT_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    PREDICATE_COUNT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EPOCH_AT_FIELD_NUMBER: _ClassVar[int]
    BEHIND_ROWS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_ROWS_FIELD_NUMBER: _ClassVar[int]
    CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CACHE_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    UPTIME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    HOLES_FIELD_NUMBER: _ClassVar[int]
    COMPOSITE_COUNT_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_COUNT_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    REST_ROWS_FIELD_NUMBER: _ClassVar[int]
    SECURITY_FIELD_NUMBER: _ClassVar[int]
    TOP_REGISTRATIONS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_FIELD_NUMBER: _ClassVar[int]
    STREAM_TIMES_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    SERVER_COUNT_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    version: str
    position: bytes
    now: _timestamp_pb2.Timestamp
    stream_count: int
    registration_count: int
    predicate_count: int
    epoch: int
    epoch_at: _timestamp_pb2.Timestamp
    behind_rows: int
    behind: _duration_pb2.Duration
    backfill_rows: int
    cache_bytes: int
    cache_limit_bytes: int
    uptime: _duration_pb2.Duration
    limits: Limits
    engine: EngineStatus
    clock: ClockState
    holes: _containers.RepeatedCompositeFieldContainer[Hole]
    composite_count: int
    suspended_count: int
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    rest_rows: int
    security: SecurityStatus
    top_registrations: _containers.RepeatedCompositeFieldContainer[RegistrationWork]
    quarantine: _containers.RepeatedCompositeFieldContainer[Quarantined]
    stream_times: _containers.RepeatedCompositeFieldContainer[StreamTime]
    server: str
    server_count: int
    def __init__(self, store_id: _Optional[str] = ..., version: _Optional[str] = ..., position: _Optional[bytes] = ..., now: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., stream_count: _Optional[int] = ..., registration_count: _Optional[int] = ..., predicate_count: _Optional[int] = ..., epoch: _Optional[int] = ..., epoch_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., behind_rows: _Optional[int] = ..., behind: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., backfill_rows: _Optional[int] = ..., cache_bytes: _Optional[int] = ..., cache_limit_bytes: _Optional[int] = ..., uptime: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., engine: _Optional[_Union[EngineStatus, _Mapping]] = ..., clock: _Optional[_Union[ClockState, _Mapping]] = ..., holes: _Optional[_Iterable[_Union[Hole, _Mapping]]] = ..., composite_count: _Optional[int] = ..., suspended_count: _Optional[int] = ..., quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ..., rest_rows: _Optional[int] = ..., security: _Optional[_Union[SecurityStatus, _Mapping]] = ..., top_registrations: _Optional[_Iterable[_Union[RegistrationWork, _Mapping]]] = ..., quarantine: _Optional[_Iterable[_Union[Quarantined, _Mapping]]] = ..., stream_times: _Optional[_Iterable[_Union[StreamTime, _Mapping]]] = ..., server: _Optional[str] = ..., server_count: _Optional[int] = ...) -> None: ...

class RegistrationWork(_message.Message):
    __slots__ = ("handle", "tenant", "owner", "client_key", "work", "pieces")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_KEY_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    handle: bytes
    tenant: str
    owner: str
    client_key: str
    work: int
    pieces: int
    def __init__(self, handle: _Optional[bytes] = ..., tenant: _Optional[str] = ..., owner: _Optional[str] = ..., client_key: _Optional[str] = ..., work: _Optional[int] = ..., pieces: _Optional[int] = ...) -> None: ...

class Quarantined(_message.Message):
    __slots__ = ("name", "tenant", "stream", "reason", "since", "registration_count", "policies")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    name: str
    tenant: str
    stream: str
    reason: str
    since: _timestamp_pb2.Timestamp
    registration_count: int
    policies: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., tenant: _Optional[str] = ..., stream: _Optional[str] = ..., reason: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., registration_count: _Optional[int] = ..., policies: _Optional[_Iterable[str]] = ...) -> None: ...

class SecurityStatus(_message.Message):
    __slots__ = ("tls", "client_certificates", "modes", "missing", "tenant", "owner", "credential")
    TLS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    MODES_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    tls: bool
    client_certificates: bool
    modes: _containers.RepeatedScalarFieldContainer[str]
    missing: _containers.RepeatedScalarFieldContainer[str]
    tenant: str
    owner: str
    credential: str
    def __init__(self, tls: _Optional[bool] = ..., client_certificates: _Optional[bool] = ..., modes: _Optional[_Iterable[str]] = ..., missing: _Optional[_Iterable[str]] = ..., tenant: _Optional[str] = ..., owner: _Optional[str] = ..., credential: _Optional[str] = ...) -> None: ...

class Hole(_message.Message):
    __slots__ = ("tenant", "stream", "first_row_id", "row_count", "begin", "end", "file", "accepted")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_ID_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    stream: str
    first_row_id: int
    row_count: int
    begin: _timestamp_pb2.Timestamp
    end: _timestamp_pb2.Timestamp
    file: str
    accepted: bool
    def __init__(self, tenant: _Optional[str] = ..., stream: _Optional[str] = ..., first_row_id: _Optional[int] = ..., row_count: _Optional[int] = ..., begin: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., file: _Optional[str] = ..., accepted: _Optional[bool] = ...) -> None: ...

class EngineStatus(_message.Message):
    __slots__ = ("running", "host", "pid", "seen_at")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    SEEN_AT_FIELD_NUMBER: _ClassVar[int]
    running: bool
    host: str
    pid: int
    seen_at: _timestamp_pb2.Timestamp
    def __init__(self, running: _Optional[bool] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., seen_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ClockRequest(_message.Message):
    __slots__ = ("confirm",)
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    confirm: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, confirm: _Optional[_Iterable[int]] = ...) -> None: ...

class ClockState(_message.Message):
    __slots__ = ("server", "clock", "stamp", "problem", "unconfirmed", "jumps", "others")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    UNCONFIRMED_FIELD_NUMBER: _ClassVar[int]
    JUMPS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    server: str
    clock: _timestamp_pb2.Timestamp
    stamp: _timestamp_pb2.Timestamp
    problem: str
    unconfirmed: _duration_pb2.Duration
    jumps: _containers.RepeatedCompositeFieldContainer[ClockJump]
    others: _containers.RepeatedCompositeFieldContainer[OtherClock]
    def __init__(self, server: _Optional[str] = ..., clock: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., stamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., problem: _Optional[str] = ..., unconfirmed: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., jumps: _Optional[_Iterable[_Union[ClockJump, _Mapping]]] = ..., others: _Optional[_Iterable[_Union[OtherClock, _Mapping]]] = ...) -> None: ...

class ZonesRequest(_message.Message):
    __slots__ = ("renew",)
    RENEW_FIELD_NUMBER: _ClassVar[int]
    renew: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, renew: _Optional[_Iterable[str]] = ...) -> None: ...

class ZonesResponse(_message.Message):
    __slots__ = ("zones", "registration_count")
    ZONES_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    zones: _containers.RepeatedCompositeFieldContainer[StoreZone]
    registration_count: int
    def __init__(self, zones: _Optional[_Iterable[_Union[StoreZone, _Mapping]]] = ..., registration_count: _Optional[int] = ...) -> None: ...

class StoreZone(_message.Message):
    __slots__ = ("name", "version", "outdated")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OUTDATED_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    outdated: bool
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., outdated: _Optional[bool] = ...) -> None: ...

class ClockJump(_message.Message):
    __slots__ = ("number", "before", "to", "server", "confirmed")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    number: int
    before: _timestamp_pb2.Timestamp
    to: _timestamp_pb2.Timestamp
    server: str
    confirmed: str
    def __init__(self, number: _Optional[int] = ..., before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., to: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., server: _Optional[str] = ..., confirmed: _Optional[str] = ...) -> None: ...

class OtherClock(_message.Message):
    __slots__ = ("server", "ahead")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    server: str
    ahead: _duration_pb2.Duration
    def __init__(self, server: _Optional[str] = ..., ahead: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("message_bytes", "batch_rows", "batch_bytes", "value_bytes")
    MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    message_bytes: int
    batch_rows: int
    batch_bytes: int
    value_bytes: int
    def __init__(self, message_bytes: _Optional[int] = ..., batch_rows: _Optional[int] = ..., batch_bytes: _Optional[int] = ..., value_bytes: _Optional[int] = ...) -> None: ...

class ListGrantsRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class ListGrantsResponse(_message.Message):
    __slots__ = ("grants",)
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    def __init__(self, grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("action", "object", "role", "owner")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    action: str
    object: str
    role: str
    owner: str
    def __init__(self, action: _Optional[str] = ..., object: _Optional[str] = ..., role: _Optional[str] = ..., owner: _Optional[str] = ...) -> None: ...

class SetQuotaRequest(_message.Message):
    __slots__ = ("tenant", "owner", "limits", "remove")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    owner: str
    limits: _containers.RepeatedCompositeFieldContainer[QuotaLimit]
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tenant: _Optional[str] = ..., owner: _Optional[str] = ..., limits: _Optional[_Iterable[_Union[QuotaLimit, _Mapping]]] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class ListQuotasRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class ListQuotasResponse(_message.Message):
    __slots__ = ("quotas",)
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    def __init__(self, quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("tenant", "owner", "limits")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    owner: str
    limits: _containers.RepeatedCompositeFieldContainer[QuotaLimit]
    def __init__(self, tenant: _Optional[str] = ..., owner: _Optional[str] = ..., limits: _Optional[_Iterable[_Union[QuotaLimit, _Mapping]]] = ...) -> None: ...

class QuotaLimit(_message.Message):
    __slots__ = ("name", "limit", "used")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    name: str
    limit: int
    used: int
    def __init__(self, name: _Optional[str] = ..., limit: _Optional[int] = ..., used: _Optional[int] = ...) -> None: ...

class AuditRequest(_message.Message):
    __slots__ = ("tenant", "page_size", "page_token")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    page_size: int
    page_token: str
    def __init__(self, tenant: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class AuditResponse(_message.Message):
    __slots__ = ("records", "next_page_token")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[AuditRecord]
    next_page_token: str
    def __init__(self, records: _Optional[_Iterable[_Union[AuditRecord, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class AuditRecord(_message.Message):
    __slots__ = ("position", "at", "tenant", "actor", "action", "object", "detail", "server")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    position: bytes
    at: _timestamp_pb2.Timestamp
    tenant: str
    actor: str
    action: str
    object: str
    detail: str
    server: str
    def __init__(self, position: _Optional[bytes] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tenant: _Optional[str] = ..., actor: _Optional[str] = ..., action: _Optional[str] = ..., object: _Optional[str] = ..., detail: _Optional[str] = ..., server: _Optional[str] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("reason", "line", "column", "excerpt", "hint", "expected", "got", "row", "field", "store_id", "retry_after", "current", "trace_id")
    REASON_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    EXCERPT_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    GOT_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    reason: str
    line: int
    column: int
    excerpt: str
    hint: str
    expected: str
    got: str
    row: int
    field: str
    store_id: str
    retry_after: _duration_pb2.Duration
    current: Rows
    trace_id: str
    def __init__(self, reason: _Optional[str] = ..., line: _Optional[int] = ..., column: _Optional[int] = ..., excerpt: _Optional[str] = ..., hint: _Optional[str] = ..., expected: _Optional[str] = ..., got: _Optional[str] = ..., row: _Optional[int] = ..., field: _Optional[str] = ..., store_id: _Optional[str] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., current: _Optional[_Union[Rows, _Mapping]] = ..., trace_id: _Optional[str] = ...) -> None: ...

class Key(_message.Message):
    __slots__ = ("id", "tenant", "owner", "roles", "claims", "created", "expires")
    ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    id: str
    tenant: str
    owner: str
    roles: _containers.RepeatedScalarFieldContainer[str]
    claims: str
    created: _timestamp_pb2.Timestamp
    expires: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., tenant: _Optional[str] = ..., owner: _Optional[str] = ..., roles: _Optional[_Iterable[str]] = ..., claims: _Optional[str] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CreateKeyRequest(_message.Message):
    __slots__ = ("tenant", "owner", "roles", "claims", "expires")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    owner: str
    roles: _containers.RepeatedScalarFieldContainer[str]
    claims: str
    expires: _timestamp_pb2.Timestamp
    def __init__(self, tenant: _Optional[str] = ..., owner: _Optional[str] = ..., roles: _Optional[_Iterable[str]] = ..., claims: _Optional[str] = ..., expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CreateKeyResponse(_message.Message):
    __slots__ = ("key", "secret", "position")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    key: Key
    secret: str
    position: bytes
    def __init__(self, key: _Optional[_Union[Key, _Mapping]] = ..., secret: _Optional[str] = ..., position: _Optional[bytes] = ...) -> None: ...

class ListKeysRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class ListKeysResponse(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[Key]
    def __init__(self, keys: _Optional[_Iterable[_Union[Key, _Mapping]]] = ...) -> None: ...

class RevokeKeyRequest(_message.Message):
    __slots__ = ("tenant", "id")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    id: str
    def __init__(self, tenant: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class RevokeKeyResponse(_message.Message):
    __slots__ = ("key", "position")
    KEY_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    key: Key
    position: bytes
    def __init__(self, key: _Optional[_Union[Key, _Mapping]] = ..., position: _Optional[bytes] = ...) -> None: ...
