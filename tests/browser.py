"""A headless Chromium that opens pages from disk, spoken to through two pipes; nothing but the browser is needed.

The protocol is that of Chrome's developer tools: JSON messages that end in a zero byte, commands numbered by us.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

_PATIENCE = 60
_BECOME = """
import fcntl, os, sys
# The protocol wants its pipes at the numbers 3 and 4; out of the way first, where they may have each other's number.
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for end, wanted in zip(ends, (3, 4)):
    os.dup2(end, wanted)
os.execv(sys.argv[3], sys.argv[3:])
"""


def program() -> str | None:
    """The browser of this machine, if it has one."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Browser:
    """One page at a time; what goes wrong in it is kept."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._number, self._unread, self._session = 0, b"", ""
        self.requests: list[str] = []
        """Everything the page asked for, itself included."""
        self.complaints: list[str] = []
        """Messages of the console and errors of the page."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{part}.enable")

    @property
    def asked_for(self) -> list[str]:
        """What the page asked for beyond what it holds; a video's buttons are pictures that the browser brings."""
        return [request for request in self.requests if not request.startswith("data:")]

    def open(self, page: Path, width: int, height: int, dark: bool = False) -> None:
        """Load a page from disk into a window of this size and wait until it is there."""
        self.requests.clear()
        self.complaints.clear()
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=page.resolve().as_uri())
        while self._hear().get("method") != "Page.loadEventFired":
            pass

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives on the page; promises are waited for."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """A picture of the page, or of what the window shows of it."""
        shot = self.ask(
            "Page.captureScreenshot", captureBeyondViewport=whole, **({"clip": self._whole()} if whole else {})
        )
        path.write_bytes(base64.b64decode(shot["data"]))

    def _whole(self) -> dict[str, float]:
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._hear()).get("id") != self._number:
            pass
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _hear(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], _PATIENCE)
            assert ready, f"The browser has said nothing for {_PATIENCE} seconds."
            part = os.read(self._from, 1 << 20)
            assert part, "The browser has gone."
            self._unread += part
        said, _, self._unread = self._unread.partition(b"\0")
        message = json.loads(said)
        method, told = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Log.entryAdded":
            self.complaints.append(told["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(str([part.get("value") for part in told["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"]))
        return message


@contextmanager
def browser() -> Generator[Browser]:
    """A browser with a profile of its own, gone afterwards."""
    path = program()
    assert path is not None
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _BECOME,
                str(theirs_in),
                str(theirs_out),
                path,
                *options,
                f"--user-data-dir={profile}",
            ],
            pass_fds=(theirs_in, theirs_out),
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Browser(ours_out, ours_in)
        finally:
            os.close(ours_out)
            process.terminate()
            process.wait(30)
            os.close(ours_in)
