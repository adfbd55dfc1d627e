"""A page in a real browser: Chromium, driven through a pipe in its own protocol, with nothing between.

One tab at a time; what the tests ask of it is JavaScript, clicks, keys, and a picture.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe"),
)
SECONDS = 120


def program() -> str | None:
    """Where a browser is, if there is one."""
    return next((found for found in map(shutil.which, PROGRAMS) if found), None)


class Browser:
    """Starts with the first page; `close` ends it."""

    def __init__(self) -> None:
        found = program()
        assert found is not None, "no Chromium: `make reports` installs one"
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        (near, self._writer), (self._reader, far) = os.pipe(), os.pipe()
        # Chromium reads commands from descriptor 3 and writes answers to descriptor 4.
        from_us, to_us = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (near, far))
        script = f'exec "$@" 3<&{from_us} 4>&{to_us}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", found, *FLAGS, f"--user-data-dir={self._profile.name}"],
            pass_fds=(from_us, to_us),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (near, far, from_us, to_us):
            os.close(end)
        self._rest, self._number, self._session = b"", 0, None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Page.enable")

    def open(self, file: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """The page at this width, in light or dark, loaded to its end."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url=file.resolve().as_uri())
        deadline = time.monotonic() + SECONDS
        while self.run("document.readyState + location.protocol") != "completefile:":
            assert time.monotonic() < deadline, f"{file} did not load"

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """A press of the mouse in the middle of an element."""
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def hover(self, selector: str) -> None:
        x, y = self._middle(selector)
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def type(self, selector: str, text: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self._call("Input.insertText", text=text)

    def picture(self, file: Path) -> None:
        """The whole page as an image."""
        data = self._call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        file.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        os.close(self._writer)
        os.close(self._reader)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    def _middle(self, selector: str) -> tuple[float, float]:
        """Scrolled into view, and two frames later, when the page knows that it was."""
        x, y = self.run(
            f"""new Promise((done) => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: 'center', inline: 'center', behavior: 'instant'}});
            requestAnimationFrame(() => requestAnimationFrame(() => {{ const b = e.getBoundingClientRect();
            done([b.x + b.width / 2, b.y + b.height / 2]); }})); }})"""
        )
        return x, y

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._next())
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self) -> bytes:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reader], [], [], SECONDS)
            assert ready, f"no answer from Chromium in {SECONDS} s"
            part = os.read(self._reader, 1 << 16)
            assert part, "Chromium ended"
            self._rest += part
        first, _, self._rest = self._rest.partition(b"\0")
        return first
