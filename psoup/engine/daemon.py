"""The parent of an executor's Python workers: pyspark's daemon, with the engine's modules loaded
before it forks, and with idle workers that end quietly.

A forked worker has the modules of its parent, so its first task imports nothing, and workers share
the memory of the modules. A fork copies only the thread that forks: a lock that another thread held
would stay locked in the worker for ever. So nothing that is imported before may start a thread.

Spark ends a worker that was idle for a minute, by closing its socket. pyspark's worker takes the
end of its input for a failed task, can't report it, and prints a BrokenPipeError. So an idle engine
would log one for each core every minute. A worker here checks first whether there is a task.
"""

from __future__ import annotations

import gc
import importlib
import os
import socket

from pyspark import daemon

from psoup.umask import set_umask

# pyspark's worker, a module that imports every module with functions that tasks run, and what
# pyarrow imports when it makes its first array of a numpy one.
PRELOADED = ("pyspark.worker", "psoup.engine.engine", "pandas")

# The libraries that start a thread when they are imported, and how to prevent it: numpy's OpenBLAS,
# and the allocators that come with pyarrow (which uses another one) and with deltalake.
THREADLESS = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "_RJEM_MALLOC_CONF": "background_thread:false",
}

_run_task = daemon.worker


def preload() -> None:
    """Import what workers need, without starting a thread."""
    os.environ |= THREADLESS
    for name in PRELOADED:
        importlib.import_module(name)
    # Collections in a worker would write to the shared memory of these objects, and so copy it.
    gc.collect()
    gc.freeze()


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
    preload()
    daemon.worker = run_task_if_any
    daemon.manager()
