"""A real browser without a driver to install: Chromium by its own protocol, over two pipes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_CALL_SECONDS = 30.0
_LOOK_PAUSE_SECONDS = 0.05


def find_browser() -> str | None:
    """Return the program of a browser of this machine; PSOUP_BROWSER names another one."""
    named = os.environ.get("PSOUP_BROWSER")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a headless Chromium. `errors` has what scripts of the page failed with."""

    def __init__(self, program: str, folder: Path, *, width: int = 1280, height: int = 900) -> None:
        self.errors: list[str] = []
        self._next = 0
        self._rest = b""
        # The browser reads commands from descriptor 3 and writes to 4, as JSON that NUL ends.
        reading, self._write = os.pipe()
        self._read, writing = os.pipe()

        def connect() -> None:
            # Copies far away first: one of the ends may be descriptor 3 or 4 itself.
            ends = os.dup(reading), os.dup(writing)
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--remote-debugging-pipe",
            f"--user-data-dir={folder}",
            f"--window-size={width},{height}",
        ]
        self._process = subprocess.Popen(
            [program, *arguments, "about:blank"],
            pass_fds=(3, 4, reading, writing),
            preexec_fn=connect,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.close(reading)
        os.close(writing)
        self._session = ""
        pages = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in pages if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            os.close(self._write)
        self._process.terminate()
        self._process.wait(10)
        os.close(self._read)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Make a call of the protocol and return its result. Events before it are looked at."""
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _CALL_SECONDS
        while time.monotonic() < deadline:
            answer = self._receive()
            if answer.get("id") == self._next:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result
            if answer.get("method") == "Runtime.exceptionThrown":
                detail = answer["params"]["exceptionDetails"]
                self.errors.append(detail.get("exception", {}).get("description", detail["text"]))
        raise TimeoutError(method)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._read, 1 << 16)
            assert piece, "the browser has ended"
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Return the value of an expression of JavaScript, after its promise."""
        result = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, script: str, seconds: float = 30.0) -> Any:
        """Return the value of an expression as soon as it is true."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(script)):
            if time.monotonic() > deadline:
                text = self.run("document.body.innerText")
                raise AssertionError(f"never true: {script}\nerrors: {self.errors}\n{text}")
            time.sleep(_LOOK_PAUSE_SECONDS)
        return value
