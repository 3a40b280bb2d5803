"""The parent of an executor's Python workers: pyspark's daemon, whose idle workers end quietly.

Spark ends a worker that was idle for a minute, by closing its socket. pyspark's worker takes the
end of its input for a failed task, can't report it, and prints a BrokenPipeError. So an idle engine
would log one for each core every minute. A worker here checks first whether there is a task.

Imported before workers are forked: nothing here may start a thread.
"""

from __future__ import annotations

import os
import socket

from pyspark import daemon

from psoup.umask import set_umask

_run_task = daemon.worker


def run_task_if_any(sock: socket.socket, authenticated: bool) -> int:
    """Wait for the next task and run it; end the process if Spark has closed the socket."""
    try:
        waiting = sock.recv(1, socket.MSG_PEEK)
    except ConnectionError:
        waiting = b""
    if not waiting:
        os._exit(0)
    return _run_task(sock, authenticated)


if __name__ == "__main__":
    # An executor may run as another user, with another umask.
    set_umask()
    daemon.worker = run_task_if_any
    daemon.manager()
