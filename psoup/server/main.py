"""A server process: from the command line to a clean end."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from datastem.accept import Limits
from psoup import configuration, lifeline, process_log, umask
from psoup.command_help import HelpFormatter, format_size, parse_size
from psoup.monitoring import settings as monitoring
from psoup.monitoring.settings import MonitoringSettings
from psoup.server.admission import QUEUE_OPTIONS, Admission
from psoup.server.core import Core
from psoup.server.group import membership
from psoup.server.group.parent import READY, Port, run_group
from psoup.server.identity.certificates import ServerCertificates
from psoup.server.identity.settings import add_options, read_options
from psoup.server.services import SERVICE, add_service, method_handlers
from psoup.server.settings import Settings
from psoup.store import Store, StoreError

log = logging.getLogger("psoup.server")

# How often a thread that computes releases the interpreter for the event loop: a call needs it
# several times.
_SWITCH_SECONDS = 0.0002
# How long a chunk of work may take to end.
_CUT_SECONDS = 2.0
# How often a server looks whether it is ready.
_READINESS_SECONDS = 1.0
_EXAMPLE = """\
example:
  psoup server --store ./store --port 7182
  psoup server --store ./store --host 0.0.0.0 --port 7181 --auth keys \\
      --tls-cert server.pem --tls-key server.key
"""


# ---- reflection


def enable_reflection(services: Sequence[str], server: grpc.aio.Server) -> None:
    """Add reflection of `services`, and of itself, to `server`."""
    names = (*services, reflection.SERVICE_NAME)
    pool = descriptor_pool.Default()
    files = [pool.FindServiceByName(name).file for name in names]
    reflection.enable_server_reflection(names, server, pool=pool_with_json_names(files))


def pool_with_json_names(files: Iterable[FileDescriptor]) -> DescriptorPool:
    """Return a pool of `files` and all their imports, in which every field has its JSON name."""
    pool, added = DescriptorPool(), set()

    def add(file: FileDescriptor) -> None:
        if file.name in added:
            return
        added.add(file.name)
        # A pool accepts a file only after its imports.
        for imported in file.dependencies:
            add(imported)
        pool.AddSerializedFile(_with_json_names(file).SerializeToString())

    for file in files:
        add(file)
    return pool


def _with_json_names(file: FileDescriptor) -> FileDescriptorProto:
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    for message in proto.message_type:
        _name_fields(message, file.message_types_by_name[message.name])
    return proto


def _name_fields(proto: DescriptorProto, message: Descriptor) -> None:
    for field in proto.field:
        field.json_name = message.fields_by_name[field.name].json_name
    for nested in proto.nested_type:
        _name_fields(nested, message.nested_types_by_name[nested.name])


# ---- the process


def parse_arguments(arguments: Sequence[str] | None = None) -> Settings:
    parser = make_parser()
    return read_settings(parser, configuration.parse_configured(parser, "server", arguments))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of a server's options, to which other doors may add theirs."""
    defaults = Settings(Path())
    parser = argparse.ArgumentParser(
        prog="psoup server",
        description="Run one server of a store: it takes rows and queries, and answers.",
        epilog=_EXAMPLE,
        formatter_class=HelpFormatter,
    )
    parser.add_argument(
        "--store",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="the store's folder; a new store is made in one that is missing or empty",
    )
    parser.add_argument(
        "--host",
        default=defaults.host,
        help="the address to listen on; any but this machine's needs TLS and --auth",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=defaults.port,
        help="the port to listen on; 0 chooses a free one",
    )
    parser.add_argument(
        "--servers",
        type=_positive,
        default=defaults.servers,
        metavar="COUNT",
        help="servers on this port, each a process, which share all limits and quotas",
    )
    parser.add_argument(membership.OPTION, type=membership.parse_membership, help=argparse.SUPPRESS)
    parser.add_argument(
        "--memory",
        type=parse_size,
        default=format_size(defaults.memory),
        metavar="SIZE",
        help="memory for rows, matches and running requests together",
    )
    parser.add_argument(
        "--durability",
        choices=["fsync", "none"],
        default=defaults.durability,
        help="fsync: what is acknowledged survives a power cut; none: it may be lost",
    )
    parser.add_argument(
        "--token-key-file",
        type=Path,
        metavar="FILE",
        help="the secret that signs sync tokens; without it, the one in the store's folder",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=defaults.wait,
        metavar="SECONDS",
        help="how long an invoke or a sync may wait for a position or the engine",
    )
    parser.add_argument(lifeline.OPTION, action="store_true", help=lifeline.HELP)
    parser.add_argument(umask.OPTION, type=umask.parse_umask, metavar="OCTAL", help=umask.HELP)
    parser.add_argument(
        "--clock-limit",
        type=float,
        default=defaults.clock_limit,
        metavar="SECONDS",
        help="how far this machine's clock may be ahead of the other servers'",
    )
    parser.add_argument(
        "--clock-settle",
        type=float,
        default=defaults.clock_settle,
        metavar="SECONDS",
        help="confirm a jump of the clock after stamps this much later; 0 trusts it at once",
    )
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--compute-rows",
        type=int,
        default=defaults.compute_rows,
        metavar="ROWS",
        help="the most rows that one answer may evaluate without the engine",
    )
    limits.add_argument(
        "--join-pairs",
        type=int,
        default=defaults.join_pairs,
        metavar="PAIRS",
        help="the most pairs of rows that the joins of one answer may look at",
    )
    limits.add_argument(
        "--message",
        type=parse_size,
        default=format_size(defaults.message_bytes),
        metavar="SIZE",
        help="the largest message that a client may send",
    )
    limits.add_argument(
        "--batch",
        type=parse_size,
        metavar="SIZE",
        help="the largest decoded batch of rows; at most, and by default, an eighth of --memory",
    )
    limits.add_argument(
        "--batch-rows",
        type=int,
        default=defaults.batch.rows,
        metavar="ROWS",
        help="the most rows of a batch",
    )
    limits.add_argument(
        "--value",
        type=parse_size,
        default=format_size(defaults.batch.value_bytes),
        metavar="SIZE",
        help="the longest TEXT in a row",
    )
    limits.add_argument(
        "--query",
        type=parse_size,
        default=format_size(defaults.query_bytes),
        metavar="SIZE",
        help="the longest SQL text",
    )
    limits.add_argument(
        "--columns",
        type=int,
        default=defaults.columns,
        metavar="COUNT",
        help="the most columns of a stream",
    )
    limits.add_argument(
        "--calls",
        type=int,
        default=defaults.calls,
        metavar="COUNT",
        help="the most calls at the same time",
    )
    limits.add_argument(
        "--watches",
        type=int,
        default=defaults.watches,
        metavar="COUNT",
        help="the most watches at the same time; they are not counted as calls",
    )
    limits.add_argument(
        "--backlog",
        type=parse_size,
        default=format_size(defaults.log_bytes),
        metavar="SIZE",
        help="refuse rows while the engine has more than this of the log to consume",
    )
    parser.add_argument(
        "--drain-delay",
        type=float,
        default=defaults.drain_delay,
        metavar="SECONDS",
        help="how long to take calls after a signal to stop, while load balancers notice",
    )
    configuration.add_option(parser)
    add_options(parser)
    process_log.add_call_option(process_log.add_options(parser))
    monitoring.add_options(parser)
    return parser


def read_settings(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Settings:
    """Return the settings that options say. End the process if they contradict each other."""
    group = options.group
    # Each server of a group has an equal part of what the machine gives all of them.
    parts = 1 if group is None else group.members
    return Settings(
        store=options.store,
        host=options.host,
        port=options.port,
        end_with_stdin=options.end_with_stdin,
        umask=options.umask,
        durability=options.durability,
        memory=options.memory // parts,
        token_key_file=options.token_key_file,
        wait=options.wait,
        clock_limit=options.clock_limit,
        clock_settle=options.clock_settle,
        batch=Limits(options.batch_rows, options.value, _batch_bytes(parser, options, parts)),
        message_bytes=options.message,
        query_bytes=options.query,
        columns=options.columns,
        compute_rows=options.compute_rows,
        join_pairs=options.join_pairs,
        calls=max(1, options.calls // parts),
        watches=max(1, options.watches // parts),
        log_bytes=options.backlog,
        identity=read_options(parser, options),
        servers=options.servers,
        group=group,
        log=process_log.read_options(options),
        monitoring=_monitoring(parser, options),
        drain_delay=max(0.0, options.drain_delay),
    )


def _monitoring(
    parser: argparse.ArgumentParser, options: argparse.Namespace
) -> MonitoringSettings | None:
    """Return the settings of the port for metrics: each server of a group has one of its own."""
    settings, group = monitoring.read_options(parser, options), options.group
    if settings is None or group is None or not settings.port:
        return settings
    return replace(settings, port=settings.port + group.member)


def _positive(text: str) -> int:
    """Return a number of at least 1. Raise ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _batch_bytes(parser: argparse.ArgumentParser, options: argparse.Namespace, parts: int) -> int:
    """Return the most bytes of a batch. It is in memory four times while it is accepted, and half
    of the memory of a server is for requests."""
    parts = max(parts, options.servers)
    most: int = options.memory // parts // 8
    if options.batch is not None and options.batch > most:
        parser.error(f"--batch {options.batch} needs --memory {8 * parts * options.batch} or more")
    return most if options.batch is None else int(options.batch)


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
        self.core = Core(store, settings)
        self.admission = Admission(self.core)
        self.handlers = method_handlers(self.core)
        self.doors: list[Door] = []
        if settings.monitoring is not None:
            # Imported here, since a server without it runs without prometheus_client.
            from psoup.server.metrics.door import MetricsDoor

            self.doors.append(MetricsDoor(self.core, self.admission, settings.monitoring))
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
        if self._readiness is not None:
            self._readiness.cancel()
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


async def serve(settings: Settings, adapt: Callable[[Server], None] = lambda server: None) -> None:
    """Serve until SIGTERM or SIGINT. `adapt` may change the server before it starts."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    # Handlers before the start: a signal during it ends the server in order afterwards.
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if settings.end_with_stdin:
        lifeline.end_with_stdin()
    sys.setswitchinterval(_SWITCH_SECONDS)
    server = Server(settings)
    adapt(server)
    await server.start()
    # These objects stay: no garbage collection needs to visit them again.
    gc.freeze()
    _warn(settings)
    log.info("identity: %s", server.identity())
    print(f"{READY}{settings.host}:{server.port}", flush=True)
    for door in server.doors:
        print(door.ready_line, flush=True)
    await stopping.wait()
    if not await server.stop():
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
    return run(parse_arguments(arguments), own_command("psoup.server", arguments))


def own_command(module: str, arguments: Sequence[str] | None) -> list[str]:
    """Return the words that start this process again."""
    words = sys.argv[1:] if arguments is None else arguments
    return [sys.executable, "-u", "-m", module, *words]


def run(
    settings: Settings,
    command: Sequence[str],
    adapt: Callable[[Server], None] = lambda server: None,
    ports: Sequence[Port] = (),
) -> int:
    """Run a server as `main` does, with settings that were read. `command` and `ports` are for a
    group: the words that start a server with the same options, and the ports of other doors."""
    process_log.start_log(settings.log)
    try:
        umask.set_umask(settings.umask, settings.store)
        if settings.servers > 1:
            return run_group(settings, command, ports)
        asyncio.run(serve(settings, adapt))
    except (StoreError, OSError, RuntimeError, ValueError, argparse.ArgumentTypeError) as error:
        print(f"the server can't start: {error}", file=sys.stderr)
        return 1
    return 0
