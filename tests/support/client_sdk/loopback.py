"""The store in memory behind a real gRPC server, so that the network path is tested too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import grpc
from google.rpc import status_pb2
from grpc_status import rpc_status

from client_sdk import PsoupError
from psoup.v1 import psoup_pb2 as pb
from psoup.v1 import psoup_pb2_grpc
from tests.support.client_sdk.fake_store import FakeStore


def _abort(context: grpc.ServicerContext, error: PsoupError, store: FakeStore) -> None:
    code = grpc.StatusCode[error.code]
    status = status_pb2.Status(code=code.value[0], message=error.message)
    detail = replace(error.detail, store_id=store.store_id)
    status.details.add().Pack(pb.ErrorDetail(**asdict(detail)))
    context.abort_with_status(rpc_status.to_status(status))


class LoopbackServicer(psoup_pb2_grpc.PsoupServicer):
    """Every call goes to the store; `before_publish` may raise in its place."""

    def __init__(self, store: FakeStore, before_publish: Callable[[Any], None]) -> None:
        self._store = store
        self._before_publish = before_publish

    def PublishStream(
        self, requests: Iterator[pb.PublishRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.PublishResponse]:
        for request in requests:
            try:
                self._before_publish(request)
                yield self._store.Publish(request)
            except PsoupError as error:
                _abort(context, error, self._store)

    def Invoke(
        self, request: pb.InvokeRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.InvokeResponse]:
        try:
            yield from self._store.Invoke(request)
        except PsoupError as error:
            _abort(context, error, self._store)

    def Ask(
        self, request: pb.AskRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.InvokeResponse]:
        try:
            yield from self._store.Ask(request)
        except PsoupError as error:
            _abort(context, error, self._store)


def _unary(name: str) -> Callable[..., Any]:
    def handle(self: LoopbackServicer, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return getattr(self._store, name)(request)
        except PsoupError as error:
            _abort(context, error, self._store)

    return handle


for _method in pb.DESCRIPTOR.services_by_name["Psoup"].methods:
    if not (_method.server_streaming or _method.client_streaming):
        setattr(LoopbackServicer, _method.name, _unary(_method.name))


@contextmanager
def serving(
    store: FakeStore,
    before_publish: Callable[[Any], None] = lambda request: None,
    *,
    port: int = 0,
) -> Iterator[str]:
    """Run a server over the store, and give its address."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    psoup_pb2_grpc.add_PsoupServicer_to_server(LoopbackServicer(store, before_publish), server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
