"""A headless Chromium, driven through its own pipe: DevTools messages, each ended by a null byte."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["CHROMIUM", "Browser"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_KEYS = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Browser:
    """One page in one browser, which ends with the ``with`` statement."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # Chromium reads from 3 and writes to 4; from 10 on neither is in the way of the other
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
        self._process = subprocess.Popen(
            [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=lambda: [os.dup2(end, fd) for end, fd in zip(ends, (3, 4))],
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (theirs_in, theirs_out, *ends):
            os.close(end)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Page.setLifecycleEventsEnabled", enabled=True)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        self._session = None
        self.send("Browser.close")
        self._process.wait(20)
        os.close(self._in)
        os.close(self._out)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command, answered; what happens in between goes to ``events``."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._in, 1 << 20)
            assert part, "Chromium has ended"
            self._buffer += part
        whole, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(whole)
        return answer

    def open(self, page: Path, fragment: str = "") -> None:
        """Show a file, and wait until it is there."""
        self._go("about:blank")  # or only the fragment of a page might change
        self._go(page.absolute().as_uri() + fragment)

    def _go(self, address: str) -> None:
        self.events.clear()
        loader = self.send("Page.navigate", url=address)["loaderId"]
        done = {"name": "load", "loaderId": loader}
        while not any(done.items() <= event.get("params", {}).items() for event in self.events):
            self.events.append(self._next())

    def size(self, width: int, height: int) -> None:
        """The size of the window, in CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **metrics)

    def theme(self, name: str) -> None:
        """What ``prefers-color-scheme`` is: "light" or "dark"."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def scripts(self, on: bool) -> None:
        """Do the scripts of a page run?"""
        self.send("Emulation.setScriptExecutionDisabled", value=not on)

    def ask(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        given = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", **given)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """A key, down and up."""
        text = {"text": "\r"} if key == "Enter" else {}
        about = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS.get(key, 0)}
        self.send("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    def point(self, selector: str) -> tuple[float, float]:
        """Move the mouse to the middle of an element, which is brought into view."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.ask(f"{found}.scrollIntoView({{block: 'center'}})")
        place = self.ask(
            f"(r => [r.x + r.width / 2, r.y + r.height / 2])({found}.getBoundingClientRect())"
        )
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
        return place[0], place[1]

    def click(self, selector: str) -> None:
        """Click on an element, as a mouse does."""
        x, y = self.point(selector)
        about = {"x": x, "y": y, "button": "left", "clickCount": 1}
        self.send("Input.dispatchMouseEvent", type="mousePressed", **about)
        self.send("Input.dispatchMouseEvent", type="mouseReleased", **about)

    def picture(self, path: Path, whole: bool = False) -> None:
        """A screenshot of the window, or of the whole page."""
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))
