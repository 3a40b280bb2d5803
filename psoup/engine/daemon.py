"""The parent of an executor's Python workers: pyspark's own, whose idle workers end quietly.

Spark lets a worker go that had nothing to do for a minute, by closing its socket. pyspark's worker
takes the end of its input for a failed task, can't tell anybody, and prints a BrokenPipeError: one
for each core in the log of a healthy engine, whenever it was idle for a minute. So a worker here
looks first whether there is a task.

Imported before workers are forked: nothing here may start a thread.
"""

from __future__ import annotations

import os
import socket

from pyspark import daemon

from psoup.umask import set_umask

_run_task = daemon.worker


def run_task_if_any(sock: socket.socket, authenticated: bool) -> int:
    """Waits for the next task and runs it; ends the process where Spark wants no more of it."""
    try:
        waiting = sock.recv(1, socket.MSG_PEEK)
    except ConnectionError:
        waiting = b""
    if not waiting:
        os._exit(0)
    return _run_task(sock, authenticated)


if __name__ == "__main__":
    # An executor may run as another user, with a umask of its own.
    set_umask()
    daemon.worker = run_task_if_any
    daemon.manager()
