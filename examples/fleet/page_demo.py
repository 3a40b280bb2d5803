"""The demo one can see: starts a store, vehicles and phones, and serves a page until Ctrl-C."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import webbrowser
from pathlib import Path

from fleet.board import Board
from fleet.web import PageServer
from local_store import free_port, running_store

DEFAULT_PORT = 7190


def run(port: int = DEFAULT_PORT, open_browser: bool = True) -> int:
    """Serve the page until Ctrl-C, and remove everything then. Return the exit status."""
    try:
        server = PageServer(port)
    except OSError as error:
        print(f"The page can't be served on port {port}: {error}; --port chooses another one")
        return 1
    print("Starting a store in a temporary folder; Spark takes 10 to 20 s longer")
    try:
        with tempfile.TemporaryDirectory(prefix="psoup-fleet-") as folder:
            web = f"127.0.0.1:{free_port()}"
            with (
                running_store(Path(folder), "--web", web) as address,
                Board(address, Path(folder), f"http://{web}") as board,
            ):
                server.start(board)
                _announce(server.url, f"http://{web}", open_browser)
                threading.Event().wait()
    except KeyboardInterrupt:
        print("\nThe store is stopped and its folder removed")
    finally:
        server.close()
    return 0


def _announce(page: str, console: str, open_browser: bool) -> None:
    print(f"\n  the page     {page}\n  the console  {console}\n")
    print("Unplug a phone, edit a job on it, let the vans drive, and plug it in again.")
    print("Ctrl-C ends the demo.", flush=True)
    # Without a screen a browser of the terminal would take over this one.
    has_screen = sys.platform in ("darwin", "win32") or {"DISPLAY", "WAYLAND_DISPLAY"} & {
        *os.environ
    }
    if open_browser and has_screen:
        webbrowser.open(page)
