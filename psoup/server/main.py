"""A server process: from the command line to a clean end."""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from psoup import lifeline, process_log, umask
from psoup.monitoring import settings as monitoring
from psoup.reloading import ReloadableOptions, hangup_reloads
from psoup.server.admission import QUEUE_OPTIONS, Admission
from psoup.server.core import Core
from psoup.server.group.parent import READY, Port, run_group
from psoup.server.identity.certificates import ServerCertificates
from psoup.server.options import make_parser, read_settings
from psoup.server.reflection import enable_reflection
from psoup.server.services import SERVICE, add_service, method_handlers
from psoup.server.settings import Settings
from psoup.service_manager import ServiceManager
from psoup.store import Store, StoreError
from psoup.tracing import open_tracing

if TYPE_CHECKING:
    from psoup.server.metrics.page import MetricsPage

log = logging.getLogger("psoup.server")

# How often a thread that computes releases the interpreter for the event loop: a call needs it
# several times.
_SWITCH_SECONDS = 0.0002
# How long a chunk of work may take to end.
_CUT_SECONDS = 2.0
# How often a server looks whether it is ready.
_READINESS_SECONDS = 1.0


class Door(Protocol):
    """Another port of a server, beside that of gRPC. Its calls go through the same Admission."""

    @property
    def ready_line(self) -> str:
        """The line that reports that the door is open."""

    def listen(self) -> None:
        """Take the port. Raise OSError if it is not free."""

    async def open(self) -> None:
        """Take calls from now on."""

    async def close(self, drain: float) -> None:
        """Take no more calls, and finish those under way for at most `drain` seconds."""


class Server:
    """A core with a port, and further `doors`. `start` returns when it serves."""

    def __init__(self, settings: Settings) -> None:
        settings.identity.check_host(settings.host)
        self.settings = settings
        tls = settings.identity.tls
        self._certificates = None if tls is None else ServerCertificates(tls)
        store = Store.open(settings.store, create=True, sync=settings.durability == "fsync")
        process_log.name_store(store.id)
        self.core = Core(store, settings)
        self.core.tracing = open_tracing("server")
        self.admission = Admission(self.core)
        self.handlers = method_handlers(self.core)
        self.doors: list[Door] = []
        self._metrics_page: MetricsPage | None = None
        self._beats: asyncio.Task[None] | None = None
        if settings.monitoring is not None:
            from psoup.server.metrics.door import MetricsDoor

            page = self.metrics_page()
            assert page is not None  # the settings were checked
            self.doors.append(MetricsDoor(self.core, page, settings.monitoring))
        self.port = 0
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._was_ready: bool | None = None
        self._readiness: asyncio.Task[None] | None = None
        self._grpc = grpc.aio.server(
            interceptors=[self.admission],
            options=[
                *QUEUE_OPTIONS,
                ("grpc.max_receive_message_length", settings.message_bytes),
                ("grpc.max_send_message_length", -1),
                # Outside a group a second server must not bind the same port: each would get a
                # part of the calls.
                ("grpc.so_reuseport", int(settings.group is not None)),
            ],
        )

    def metrics_page(self) -> MetricsPage | None:
        """Return the page `/metrics`, from which on calls are counted; None if the package that
        writes metrics is missing."""
        if self._metrics_page is None and importlib.util.find_spec("prometheus_client"):
            # Imported here, since a server without it runs without prometheus_client.
            from psoup.server.metrics.page import MetricsPage

            settings = self.settings.monitoring
            names = monitoring.DEFAULT_METRIC_NAMES if settings is None else settings.names
            self._metrics_page = MetricsPage(self.core, self.admission, names)
        return self._metrics_page

    async def start(self) -> None:
        """Raise StoreError, or RuntimeError if the port is not free."""
        add_service(self.handlers, self._grpc)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        enable_reflection((SERVICE, health.SERVICE_NAME), self._grpc)
        # The port before the store: an occupied port is reported without reading the log first.
        self.port = self._listen()
        for door in self.doors:
            door.listen()
        await self.core.start()
        await self._grpc.start()
        for door in self.doors:
            await door.open()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        await self._tell_readiness()
        self._readiness = asyncio.create_task(self._watch_readiness())
        if self._metrics_page is not None:
            self._beats = asyncio.create_task(self._metrics_page.beat())

    def _listen(self) -> int:
        """Open the port and return its number. Raise RuntimeError if it is not free."""
        place = f"{self.settings.host}:{self.settings.port}"
        if self._certificates is None:
            return self._grpc.add_insecure_port(place)
        return self._grpc.add_secure_port(place, self._certificates.credentials())

    def identity(self) -> str:
        """Return a line for people on who may connect."""
        tls = self.settings.identity.tls
        line = "no TLS" if tls is None else "TLS, both ways" if tls.client_ca else "TLS"
        modes = self.core.authenticator.modes()
        return f"{line}; callers show {' or '.join(modes) if modes else 'nothing'}"

    def reload(self, options: ReloadableOptions) -> None:
        """Read again what may change while the server runs: how it logs, and files of identity."""
        options.reload()
        self.admission.slow_seconds = options.log.call_seconds
        if self._certificates is not None:
            self._certificates.check()
        self.core.authenticator.refresh()

    async def stop(self) -> bool:
        """Finish the calls under way for at most `drain`, then cut them at their chunk.

        Return whether all has ended: what hangs, on a disk for example, is left after as long
        again.
        """
        drain = self.settings.drain
        # Readiness first, so that balancers send no new calls while those under way are finished.
        self.core.stopping = True
        await self._tell_readiness()
        await asyncio.sleep(self.settings.drain_delay)
        for task in (self._readiness, self._beats):
            if task is not None:
                task.cancel()
        await self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        self.core.close()
        try:
            async with asyncio.timeout(2 * drain + _CUT_SECONDS):
                # Calls end before the core does: they submit to the appender and read from the
                # follower.
                await asyncio.gather(
                    self._grpc.stop(drain), *(door.close(drain) for door in self.doors)
                )
                await self.core.stop()
                await self.core.turns.ended()
        except TimeoutError:
            return False
        finally:
            if self.core.tracing is not None:
                await asyncio.to_thread(self.core.tracing.close)
        return True

    async def _tell_readiness(self) -> None:
        """Set the health of the service, which is whether this server is ready. That of "" says
        that it lives."""
        is_ready = not self.core.lacks()
        if is_ready != self._was_ready:
            kind = health_pb2.HealthCheckResponse
            await self._health.set(SERVICE, kind.SERVING if is_ready else kind.NOT_SERVING)
            self._was_ready = is_ready

    async def _watch_readiness(self) -> None:
        while True:
            await asyncio.sleep(_READINESS_SECONDS)
            await self._tell_readiness()


async def serve(
    settings: Settings,
    adapt: Callable[[Server], None] = lambda server: None,
    options: ReloadableOptions | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. `adapt` may change the server before it starts; SIGHUP reads
    `options` again."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    manager = ServiceManager.of_environment()
    # Handlers before the start: a signal during it ends the server in order afterwards.
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if settings.end_with_stdin:
        lifeline.end_with_stdin()
    sys.setswitchinterval(_SWITCH_SECONDS)
    server = Server(settings)
    adapt(server)
    if not hangup_reloads():
        loop.add_signal_handler(signal.SIGHUP, stopping.set)
    elif options is not None:
        loop.add_signal_handler(signal.SIGHUP, server.reload, options)
    await server.start()
    # These objects stay: no garbage collection needs to visit them again.
    gc.freeze()
    _warn(settings)
    log.info("identity: %s", server.identity())
    print(f"{READY}{settings.host}:{server.port}", flush=True)
    for door in server.doors:
        print(door.ready_line, flush=True)
    manager.ready()
    beats = asyncio.create_task(manager.beat_by_loop())
    await stopping.wait()
    manager.stopping()
    has_ended = await server.stop()
    beats.cancel()
    if not has_ended:
        log.warning("some work did not end; it is left")
        logging.shutdown()
        # An ordinary end would wait for the threads.
        os._exit(0)


def _warn(settings: Settings) -> None:
    missing = settings.identity.missing_for(settings.host)
    if missing:
        log.warning(
            "INSECURE: %s can be reached from other machines, and has no %s: anyone there can "
            "read, change and delete everything",
            settings.host,
            " and no ".join(missing),
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a server, or several on one port; return 0 after a clean end, 1 if one can't start, 2 for
    wrong arguments."""
    options = ReloadableOptions(make_parser, "server", arguments)
    settings = read_settings(options.parser, options.values)
    return run(settings, own_command("psoup.server", arguments), options)


def own_command(module: str, arguments: Sequence[str] | None) -> list[str]:
    """Return the words that start this process again."""
    words = sys.argv[1:] if arguments is None else arguments
    return [sys.executable, "-u", "-m", module, *words]


def run(
    settings: Settings,
    command: Sequence[str],
    options: ReloadableOptions,
    adapt: Callable[[Server], None] = lambda server: None,
    ports: Sequence[Port] = (),
) -> int:
    """Run a server as `main` does, with settings that were read. `command` and `ports` are for a
    group: the words that start a server with the same options, and the ports of other doors."""
    process_log.start_log(settings.log)
    try:
        umask.set_umask(settings.umask, settings.store)
        if settings.servers > 1:
            return run_group(settings, command, options, ports)
        asyncio.run(serve(settings, adapt, options))
    except (StoreError, OSError, RuntimeError, ValueError, argparse.ArgumentTypeError) as error:
        print(f"the server can't start: {error}", file=sys.stderr)
        return 1
    return 0
