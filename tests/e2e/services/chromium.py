"""A real browser without a window: pages are opened, looked at, typed into and photographed.

Owns: one Chromium process, spoken to in the DevTools protocol over a pipe, so that no port and no library is needed.
Must not: know what the pages are. Everything but loopback is unreachable for it.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from . import debian
from .processes import ServiceError, wait_for

if TYPE_CHECKING:
    from types import TracebackType

PACKAGES = ("chromium-headless-shell", "chromium-common", "fonts-dejavu-core")
PATIENCE = 30.0
"""Seconds that an answer of the browser may take."""

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--remote-debugging-pipe",
)  # fmt: skip
_KEYS = {
    "Tab": 9, "Enter": 13, "Escape": 27, "Space": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
    "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip
_TEXTS = {"Enter": "\r", "Space": " "}


_FONTS = "<fontconfig><dir>{root}/usr/share/fonts</dir><cachedir>{scratch}/fonts</cachedir></fontconfig>\n"


def program(scratch: Path) -> tuple[str, dict[str, str]]:
    """The browser of this host, else Debian's smallest unpacked into the cache, with a font; and its environment."""
    for name in ("chromium-headless-shell", "chromium"):
        if found := shutil.which(name):
            return found, dict(os.environ)
    root = debian.unpacked(*PACKAGES)
    [binary] = [path for path in root.glob("usr/lib/chromium*/*headless*shell") if os.access(path, os.X_OK)]
    fonts = scratch / "fonts.conf"
    fonts.write_text(_FONTS.format(root=root, scratch=scratch))
    return str(binary), {**os.environ, "FONTCONFIG_FILE": str(fonts), "LD_LIBRARY_PATH": debian.library_path(root)}


@final
class Browser:
    """One browser; a context manager. `open` gives a page of its own, without what others stored."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}

    def __enter__(self) -> Browser:
        self._profile = tempfile.TemporaryDirectory(prefix="ibmon-chromium-", ignore_cleanup_errors=True)
        found, env = program(Path(self._profile.name))
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self._log = Path(self._profile.name) / "log"
        with self._log.open("wb") as log:
            self._popen = subprocess.Popen(
                [
                    "setpriv", "--pdeathsig", "KILL", "--", "bash", "-c",
                    f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}',
                    found, *_FLAGS, f"--user-data-dir={self._profile.name}/profile", "about:blank",
                ],
                pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=env | {"HOME": self._profile.name},
            )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._out, self._in = os.fdopen(ours_out, "wb", buffering=0), os.fdopen(ours_in, "rb")
        self._listener = threading.Thread(target=self._listen, daemon=True, name="chromium")
        self._listener.start()
        self.call("Browser.getVersion")
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ServiceError, OSError):
            self.call("Browser.close")
        try:
            self._popen.wait(10)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._listener.join(10)
        self._out.close()
        self._in.close()
        self._profile.cleanup()

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Ask for something in the protocol's words. Raises `ServiceError` with the browser's complaint."""
        number = next(self._ids)
        answer = self._answers[number] = queue.SimpleQueue()
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        self._out.write(json.dumps(message).encode() + b"\0")
        try:
            found = answer.get(timeout=PATIENCE)
        except queue.Empty:
            raise ServiceError(f"the browser does not answer {method}: {self._log.read_text()[-500:]}") from None
        finally:
            del self._answers[number]
        if "error" in found:
            raise ServiceError(f"{method}: {found['error'].get('message')}")
        result: dict[str, Any] = found["result"]
        return result

    def open(self, url: str, **look: Any) -> Tab:
        """A tab that has loaded `url`; a context manager that closes it. For `look` see `Tab`."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self._tabs[session] = Tab(self, session, context)
        try:
            tab.begin(url, **look)
        except BaseException:
            tab.close()
            raise
        return tab

    def _listen(self) -> None:
        rest = b""
        while chunk := self._in.read1(1 << 16):  # type: ignore[attr-defined]  # a buffered reader has it
            *messages, rest = (rest + chunk).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message and message["id"] in self._answers:
                    self._answers[message["id"]].put(message)
                elif (tab := self._tabs.get(message.get("sessionId", ""))) is not None:
                    tab.hear(message["method"], message["params"])


@final
class Tab:
    """One page. `errors` are complaints of console, scripts and policy; `requests` is what it asked for."""

    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self._browser, self._session, self._context = browser, session, context
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._loaded = threading.Event()

    def __enter__(self) -> Tab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the page, and forget what it stored."""
        with contextlib.suppress(ServiceError):
            self.call("Target.disposeBrowserContext", session=None, browserContextId=self._context)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the protocol to this page."""
        params.setdefault("session", self._session)
        return self._browser.call(method, **params)

    def begin(
        self, url: str, *, width: int = 1280, height: int = 800, dark: bool = False, phone: bool = False,
        scripts: bool = True, trusting: bool = False,
    ) -> None:  # fmt: skip
        """Load the page. `phone`: two dots a pixel and a finger; `trusting`: its policy is not held to."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, mobile=phone,
            deviceScaleFactor=2 if phone else 1,
        )  # fmt: skip
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Page.setBypassCSP", enabled=trusting)
        if error := self.call("Page.navigate", url=url).get("errorText"):
            raise ServiceError(f"{url}: {error}")
        if not self._loaded.wait(PATIENCE):
            raise ServiceError(f"{url} is not loaded after {PATIENCE:g} s")

    def hear(self, method: str, params: dict[str, Any]) -> None:
        """Take what the browser tells of this page."""
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description") or details["text"])
            case "Runtime.consoleAPICalled" if params["type"] in {"error", "warning", "assert"}:
                self.errors.append(" ".join(str(arg.get("value", arg)) for arg in params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in {"error", "warning"}:
                self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}".strip())
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True,
            allowUnsafeEvalBlockedByCSP=False,
        )  # fmt: skip
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise ServiceError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def wait(self, condition: str, *, within: float = 15.0) -> Any:
        """The first value of an expression that is true."""
        return wait_for(lambda: self.evaluate(condition), within=within, what=condition)

    def text(self, selector: str) -> str:
        """What a person reads in the first element that matches."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def press(self, key: str, times: int = 1) -> None:
        """Press a key, or type one character."""
        code = _KEYS.get(key, ord(key[0].upper()))
        text = _TEXTS.get(key, key if len(key) == 1 else "")
        given = {"key": text if key == "Space" else key, "code": key, "windowsVirtualKeyCode": code, "text": text}
        for _ in range(times):
            self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **given)
            self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def click(self, x: float, y: float) -> None:
        """Click at a point of the window."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """A photograph of the whole page, or of what the window shows."""
        taken = self.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole=whole)
        )
        path.write_bytes(base64.b64decode(taken["data"]))

    def _clip(self, *, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
