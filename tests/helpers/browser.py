"""A headless Chromium, driven through a pipe: what it shows, what it writes to its console, and what it asks for."""

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

from waiting import PATIENCE

CHROMIUM = shutil.which("chromium")
OPTIONS = """--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync
    --disable-component-update --disable-extensions --disable-dev-shm-usage --hide-scrollbars --remote-debugging-pipe
    --force-color-profile=srgb""".split()
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
HELPERS = """
    window.deep = (selector, root = document) => {
      const found = [...root.querySelectorAll(selector)];
      for (const one of root.querySelectorAll("*")) if (one.shadowRoot) found.push(...deep(selector, one.shadowRoot));
      return found;
    };
    window.texts = (selector) => deep(selector).map((one) => one.innerText.trim());
    window.model = (name) => Bokeh.documents[0].get_model_by_name(name);
"""
"""Bokeh draws into shadow trees, which ordinary selectors do not enter."""


class Browser:
    """One process; every page is a tab of its own."""

    def __init__(self, folder: Path, *options: str):
        there, mine = _pipe()
        self.theirs, back = _pipe()
        command = [CHROMIUM, *OPTIONS, OFFLINE, *options, f"--user-data-dir={folder / 'profile'}", "about:blank"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=lambda: (os.dup2(there, 3), os.dup2(back, 4)),
        )
        os.close(there)
        os.close(back)
        self.mine, self.numbers, self.rest = mine, itertools.count(1), b""
        self.pages: dict[str, Page] = {}

    def call(self, method: str, session: str | None = None, **parameters) -> dict:
        """Ask for something and wait for the answer; what happens meanwhile is kept by the pages."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self.mine, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            if "method" in answer and answer.get("sessionId") in self.pages:
                self.pages[answer["sessionId"]].take(answer["method"], answer["params"])

    def _receive(self) -> dict:
        while b"\0" not in self.rest:
            assert select.select([self.theirs], [], [], PATIENCE)[0], "the browser hangs"
            content = os.read(self.theirs, 2**20)
            assert content, "the browser has ended"
            self.rest += content
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> "Page":
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, target)
        page.set_up(width, height, dark)
        page.go(url)
        return page

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)
        os.close(self.mine)
        os.close(self.theirs)


def _pipe() -> tuple[int, int]:
    """Make a pipe whose ends are none of the numbers that the browser reads and writes."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10))
        os.close(end)
    return ends[0], ends[1]


class Page:
    """A tab, with all that it said and asked for since it was opened."""

    def __init__(self, browser: Browser, session: str, target: str):
        self.browser, self.session, self.target = browser, session, target
        self.console: list[str] = []
        self.requests: list[str] = []
        self.headers: dict[str, dict[str, str]] = {}
        self.frames: list[str] = []

    def call(self, method: str, **parameters) -> dict:
        return self.browser.call(method, self.session, **parameters)

    def set_up(self, width: int, height: int, dark: bool) -> None:
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # every tab as if it were in front
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.addScriptToEvaluateOnNewDocument", source=HELPERS)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def take(self, method: str, values: dict) -> None:
        if method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.console.append(" ".join(str(part.get("value", part.get("description"))) for part in values["args"]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(json.dumps(values["exceptionDetails"])[:2000])
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.console.append(values["entry"]["text"] + " " + values["entry"].get("url", ""))
        elif method == "Audits.issueAdded":
            self.console.append(json.dumps(values["issue"])[:2000])
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"][:500])
        elif method == "Network.webSocketCreated":
            self.requests.append(values["url"])
        elif method == "Network.responseReceived":
            self.headers[values["response"]["url"]] = values["response"]["headers"]

    def go(self, url: str) -> None:
        assert "errorText" not in (answer := self.call("Page.navigate", url=url)), answer
        self.wait("document.readyState == 'complete'")

    def evaluate(self, expression: str) -> object:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, (expression, result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, expression: str, seconds: float = PATIENCE) -> object:
        """Wait until an expression is true; what it was then."""
        deadline = time.monotonic() + seconds
        while True:
            result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
            if "exceptionDetails" not in result and result["result"].get("value"):
                return result["result"]["value"]
            assert time.monotonic() < deadline, f"never true: {expression}; console: {self.console}; {result}"
            time.sleep(0.02)

    def click(self, expression: str) -> None:
        """Click in the middle of an element, as a mouse does."""
        self.evaluate(f"({expression}).scrollIntoView({{block: 'center'}})")
        box = self.evaluate(f"(() => {{ const b = ({expression}).getBoundingClientRect();"
                            " return [b.x + b.width / 2, b.y + b.height / 2]; })()")  # fmt: skip
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def screenshot(self, path: Path, whole: bool = False) -> Path:
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(picture["data"]))
        return path

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self.target)
        self.browser.pages.pop(self.session)
