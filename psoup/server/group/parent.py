"""The parent of a group: it reserves the port, starts the members, and starts those again that end.

The members listen on the same port (SO_REUSEPORT), and the kernel divides the connections between
them. The parent itself serves nothing.
"""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from psoup import lifeline, process_log
from psoup.addresses import bound_socket
from psoup.processes import Backoff, Child, PrintLine
from psoup.reloading import ReloadableOptions, hangup_reloads
from psoup.server.group.counts import GroupCounts, make_table
from psoup.server.group.membership import OPTION, Membership
from psoup.server.group.watchdog import MemberWatchdog
from psoup.server.settings import Settings
from psoup.service_manager import ServiceManager
from psoup.store import Store

log = logging.getLogger("psoup.server")

READY = "server ready on "
_READY_LINE = re.compile(r"\w+ ready on ")
_POLL_SECONDS = 0.2
# A server has 12 s to end in order; the parent waits longer for all of them together.
_GRACE_SECONDS = 15.0
# Parties of a watch: its tenant and its owner.
_KEYS_PER_WATCH = 2


@dataclass(frozen=True, slots=True)
class Port:
    """Another port of each member: the option that names it, and its address."""

    option: str
    host: str
    port: int

    def words(self, port: int) -> list[str]:
        """Return the option with the number of the port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return [self.option, f"{host}:{port}"]


class GroupServer:
    """A server of the group, and when it is to be started again."""

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        print_line: PrintLine,
        descriptor: int,
        watchdog: MemberWatchdog | None,
    ) -> None:
        self.number = number
        self.watchdog = watchdog
        self.child = Child(
            f"server {number + 1}",
            command,
            print_line,
            environment=None if watchdog is None else watchdog.environment,
            ready=READY,
            pass_fds=(descriptor,),
        )
        self.due: float | None = None
        self._started_at = 0.0
        self._backoff = Backoff()

    def start(self) -> None:
        self.due, self._started_at = None, time.monotonic()
        if self.watchdog is not None:
            self.watchdog.begin()
        self.child.start()

    def schedule(self) -> float:
        """Return the seconds until the next start, and remember that."""
        now = time.monotonic()
        wait = self._backoff.after(now - self._started_at)
        self.due = now + wait
        return wait


class Group:
    """The members of a group, from the first start to a clean end."""

    def __init__(self, settings: Settings, command: Sequence[str], ports: Sequence[Port]) -> None:
        """`command` starts a server with the same options; `ports` are those of other doors."""
        self.stopping = threading.Event()
        self._settings = settings
        self._command = command
        self._ports = ports
        self._ready_lines: list[str] = []
        self._members: list[GroupServer] = []
        self._manager = ServiceManager.of_environment()

    def run(self) -> int:
        """Run until `stopping` is set; return 0, or 1 if a member can't start."""
        settings, count = self._settings, self._settings.servers
        with contextlib.ExitStack() as stack:
            port = stack.enter_context(reserved_port(settings.host, settings.port))
            # The last of several equal options counts.
            options = ["--port", str(port), "--servers", "1", lifeline.OPTION]
            for other in self._ports:
                options += other.words(stack.enter_context(reserved_port(other.host, other.port)))
            file = stack.enter_context(tempfile.TemporaryFile(prefix="psoup-group-"))
            make_table(file.fileno(), count, _KEYS_PER_WATCH * settings.watches)
            counts = GroupCounts(file.fileno(), 0, count)
            members = self._members
            for number in range(count):
                place = Membership(file.fileno(), number, count).option()
                words = [*self._command, *options, OPTION, place]
                watchdog = self._watchdog(stack, number)
                members.append(
                    GroupServer(number, words, self._print_line, file.fileno(), watchdog)
                )
            stack.callback(_stop, members)
            # The first one alone: it may have to make the store.
            for starting in (members[:1], members[1:]):
                for member in starting:
                    member.start()
                if not all(map(self._wait_ready, starting)):
                    return 0 if self.stopping.is_set() else 1
            process_log.name_store(Store.open(settings.store).id)
            print(*self._ready_lines, sep="\n", flush=True)
            self._manager.ready()
            while not self.stopping.wait(_POLL_SECONDS):
                self._manager.beat()
                for member in members:
                    _end_hung(member)
                    _keep_running(member, counts)
            self._manager.stopping()
        return 0

    def _watchdog(self, stack: contextlib.ExitStack, number: int) -> MemberWatchdog | None:
        """Return a watchdog of a member, for as long as the stack; None if the group has none."""
        seconds = self._manager.watchdog_seconds
        if seconds is None:
            return None
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="psoup-group-"))
        watchdog = MemberWatchdog(Path(folder, str(number)), seconds)
        stack.callback(watchdog.close)
        return watchdog

    def reload(self, options: ReloadableOptions) -> None:
        options.reload()
        for member in self._members:
            member.child.send_signal(signal.SIGHUP)

    def _wait_ready(self, member: GroupServer) -> bool:
        while not self.stopping.is_set():
            if member.child.is_ready.wait(_POLL_SECONDS):
                return True
            if member.child.ended() is not None:
                return False
        return False

    def _print_line(self, name: str, line: str) -> None:
        """Print a line of a member. That a port is ready is printed once, when all members are."""
        if _READY_LINE.match(line):
            if line not in self._ready_lines:
                self._ready_lines.append(line)
        else:
            print(f"{name}: {line}", file=sys.stderr, flush=True)


def _end_hung(member: GroupServer) -> None:
    """Kill a member whose event loop stands still, so that it is started again: the service manager
    watches this process only."""
    if member.watchdog is not None and member.child.ended() is None and member.watchdog.has_hung():
        log.warning("%s does not report any more and is killed", member.child.name)
        member.child.send_signal(signal.SIGKILL)


def _keep_running(member: GroupServer, counts: GroupCounts) -> None:
    code = member.child.ended()
    if code is not None and member.due is None:
        counts.forget(member.number)
        wait = member.schedule()
        log.warning("%s ended with %d; restarting it in %g s", member.child.name, code, wait)
    if member.due is not None and time.monotonic() >= member.due:
        member.start()


def _stop(members: Sequence[GroupServer]) -> None:
    for member in members:
        member.child.terminate()
    for member in members:
        member.child.stop(_GRACE_SECONDS)


@contextlib.contextmanager
def reserved_port(host: str, port: int) -> Iterator[int]:
    """Keep a port for the members, which can listen on it meanwhile; yield its number. Raise
    OSError if it is not free."""
    # First without sharing: otherwise two groups could share a port, and mix their calls.
    with bound_socket(host, port, socket.SO_REUSEADDR) as probe:
        # A port 0 was replaced by a free one.
        port = int(probe.getsockname()[1])
    # These sockets do not listen, so they get no connections. SO_REUSEADDR would let another group
    # take the port until members listen, so it is set only if it must be: there are connections of
    # a server that has ended.
    try:
        keeper = bound_socket(host, port, socket.SO_REUSEPORT)
    except OSError:
        keeper = bound_socket(host, port, socket.SO_REUSEPORT, socket.SO_REUSEADDR)
    with keeper:
        yield port


def run_group(
    settings: Settings,
    command: Sequence[str],
    options: ReloadableOptions,
    ports: Sequence[Port] = (),
) -> int:
    """Run a group until SIGTERM or SIGINT; return its exit code. SIGHUP reads the options again, in
    all members. Raise OSError if the port is not free."""
    group = Group(settings, command, ports)
    ending = [signal.SIGTERM, signal.SIGINT]
    if hangup_reloads():
        signal.signal(signal.SIGHUP, lambda *_: group.reload(options))
    else:
        ending.append(signal.SIGHUP)
    for number in ending:
        signal.signal(number, lambda *_: group.stopping.set())
    if settings.end_with_stdin:
        lifeline.end_with_stdin()
    return group.run()
