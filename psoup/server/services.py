"""The handlers of all RPCs of proto/psoup/v1, and their registration with gRPC.

A handler is called as `(core, call, request)`. Admission calls it, and makes its errors statuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from psoup.server.call import Call
from psoup.server.calls.administer import audit, list_grants, list_quotas, set_quota
from psoup.server.calls.define import define
from psoup.server.calls.describe import (
    clock,
    describe_registration,
    describe_stream,
    list_registrations,
    list_streams,
    list_views,
    status,
)
from psoup.server.calls.explain import explain
from psoup.server.calls.invoke import ask, invoke
from psoup.server.calls.keys import create_key, list_keys, revoke_key
from psoup.server.calls.publish import publish, publish_stream
from psoup.server.calls.publishers import forget_publishers, list_publishers
from psoup.server.calls.register import handle_register, handle_register_many, unregister
from psoup.server.calls.sync import sync
from psoup.server.calls.watch import watch
from psoup.server.calls.zones import zones
from psoup.server.core import Core
from psoup.server.wire.arrow import serialize
from psoup.v1 import psoup_pb2 as pb

_SERVICE = pb.DESCRIPTOR.services_by_name["Psoup"]
SERVICE = _SERVICE.full_name

HANDLERS: Mapping[str, Callable[[Core, Call, Any], Any]] = {
    "Define": define,
    "ListStreams": list_streams,
    "DescribeStream": describe_stream,
    "ListViews": list_views,
    "Register": handle_register,
    "RegisterMany": handle_register_many,
    "Unregister": unregister,
    "ListRegistrations": list_registrations,
    "DescribeRegistration": describe_registration,
    "Publish": publish,
    "PublishStream": publish_stream,
    "ListPublishers": list_publishers,
    "ForgetPublishers": forget_publishers,
    "Invoke": invoke,
    "Ask": ask,
    "Explain": explain,
    "Sync": sync,
    "Watch": watch,
    "Status": status,
    "Clock": clock,
    "Zones": zones,
    "CreateKey": create_key,
    "ListKeys": list_keys,
    "RevokeKey": revoke_key,
    "ListGrants": list_grants,
    "SetQuota": set_quota,
    "ListQuotas": list_quotas,
    "Audit": audit,
}


def method_handlers(core: Core) -> dict[str, Any]:
    """Return the handlers of all RPCs by name, as gRPC has them. Admission must guard them."""
    return {method.name: _method_handler(core, method) for method in _SERVICE.methods}


def add_service(methods: Any, server: Any) -> None:
    """Register the handlers of all RPCs with a gRPC server whose interceptor is an Admission."""
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))


def _method_handler(core: Core, method: MethodDescriptor) -> Any:
    handler = HANDLERS[method.name]

    def respond(request: Any, call: Call) -> Any:
        return handler(core, call, request)

    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[method.client_streaming, method.server_streaming]
    return make(respond, GetMessageClass(method.input_type).FromString, serialize)
