"""A real browser without a driver to install: Chromium by its own protocol, over two pipes."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_CALL_SECONDS = 30.0
# Copies far away first: one of the ends may be descriptor 3 or 4 itself.
_START = (
    "import fcntl, os, sys\n"
    "ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]\n"
    "for end, number in zip(ends, (3, 4)): os.dup2(end, number)\n"
    "os.execvp(sys.argv[3], sys.argv[3:])\n"
)
_LOOK_PAUSE_SECONDS = 0.05


def find_browser() -> str | None:
    """Return the program of a browser of this machine, or of the one that `scripts/test --all` has
    fetched; PSOUP_BROWSER names another one."""
    if named := os.environ.get("PSOUP_BROWSER"):
        return named
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    fetched = str(cache / "psoup" / "browser" / "chromium")
    return next(filter(None, map(shutil.which, (*NAMES, fetched))), None)


class Browser:
    """A tab of a headless Chromium. `errors` has what the pages failed with."""

    def __init__(self, program: str, folder: Path, *, width: int = 1280, height: int = 900) -> None:
        self.errors: list[str] = []
        self._next = 0
        self._rest = b""
        # The browser reads commands from descriptor 3 and writes to 4, as JSON that NUL ends.
        reading, self._write = os.pipe()
        self._read, writing = os.pipe()
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--remote-debugging-pipe",
            f"--user-data-dir={folder}",
            f"--window-size={width},{height}",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(reading), str(writing), program, *arguments],
            pass_fds=(reading, writing),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.close(reading)
        os.close(writing)
        self._session = ""
        pages = self.call("Target.getTargets")["targetInfos"]
        self.tab = self._attach(next(page["targetId"] for page in pages if page["type"] == "page"))

    def _attach(self, target: str) -> str:
        self._session = ""
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = str(attached["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self._session

    def new_tab(self) -> str:
        """Open another tab, which calls are for from now on. The other one is hidden until
        `switch` shows it."""
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        return self._attach(target)

    def switch(self, tab: str) -> None:
        self._session = tab
        self.call("Page.bringToFront")

    def cut(self, offline: bool) -> None:
        """Take the network from the page, or give it back."""
        self.call(
            "Network.emulateNetworkConditions",
            offline=offline,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

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
            self._note(answer)
        raise TimeoutError(method)

    def _note(self, event: dict[str, Any]) -> None:
        """Keep what a page failed with: exceptions, refused scripts, modules that are not there."""
        if event.get("method") == "Runtime.exceptionThrown":
            detail = event["params"]["exceptionDetails"]
            self.errors.append(detail.get("exception", {}).get("description", detail["text"]))
        elif event.get("method") == "Log.entryAdded":
            entry = event["params"]["entry"]
            is_script = entry.get("url", "").endswith((".js", ".css"))
            if entry["level"] == "error" and (entry["source"] == "security" or is_script):
                self.errors.append(entry["text"])

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

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Become a screen of this size that prefers light or dark pages."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        preferred = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[preferred])

    def picture(self, *, whole: bool = False) -> bytes:
        """Return the page as PNG: what the screen shows, or all of it."""
        result = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(result["data"])

    def run(self, script: str) -> Any:
        """Return the value of an expression of JavaScript, after its promise."""
        result = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, script: str, seconds: float = 30.0) -> Any:
        """Return the value of an expression as soon as it is true. One that fails is not yet true:
        a page that is being opened has no body."""
        deadline = time.monotonic() + seconds
        attempt = f"(() => {{ try {{ return ({script}); }} catch {{ return false; }} }})()"
        while not (value := self.run(attempt)):
            if time.monotonic() > deadline:
                text = self.run("document.body.innerText")
                raise AssertionError(f"never true: {script}\nerrors: {self.errors}\n{text}")
            time.sleep(_LOOK_PAUSE_SECONDS)
        return value
