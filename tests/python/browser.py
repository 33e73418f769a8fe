"""A browser without a window, driven over the WebDriver protocol: what the tests of pages need of it."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

DRIVER = shutil.which("chromedriver")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(not (DRIVER and BROWSER), reason="needs chromium and chromium-driver")

KEYS = {"ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015", "Tab": "\ue004"}


class Browser:
    """One window. Pages are opened by their path; what they log is kept."""

    def __init__(self, address: str, dark: bool) -> None:
        self._address = address
        features = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []
        options = {
            "binary": BROWSER,
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000", *features],
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"

    def _ask(self, method: str, path: str, content: Any = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(
            self._address + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, page: Path, hash: str = "") -> None:
        self._ask("POST", f"{self._session}/url", {"url": "about:blank"})
        self._ask("POST", f"{self._session}/url", {"url": page.as_uri() + hash})

    def run(self, script: str, *arguments: Any) -> Any:
        """What the function body gives; waits for a promise."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, field: str) -> Any:
        """What the page has put in this field of its root's dataset, as JSON."""
        script = """
            return new Promise((done) => {
              const look = () => document.documentElement.dataset[arguments[0]] || setTimeout(
                () => { const found = look(); if (typeof found === "string") done(found); }, 20);
              const found = look();
              if (typeof found === "string") done(found);
            });"""
        return json.loads(self.run(script, field))

    def press(self, *keys: str) -> None:
        pressed = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        actions = [{"type": "key", "id": "keyboard", "actions": pressed}]
        self._ask("POST", f"{self._session}/actions", {"actions": actions})

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("GET", f"{self._session}/screenshot")))

    def tree(self) -> list[dict[str, Any]]:
        """What a screen reader is given: roles, names and properties."""
        asked = {"cmd": "Accessibility.getFullAXTree", "params": {}}
        nodes = self._ask("POST", f"{self._session}/goog/cdp/execute", asked)["nodes"]
        return [node for node in nodes if not node["ignored"]]

    def log(self, kind: str = "browser") -> list[dict[str, Any]]:
        """What was logged since the last time."""
        entries: list[dict[str, Any]] = self._ask("POST", f"{self._session}/se/log", {"type": kind})
        return entries

    def close(self) -> None:
        self._ask("DELETE", self._session)


@contextmanager
def browser(*, dark: bool = False) -> Iterator[Browser]:
    assert DRIVER is not None
    with subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        try:
            found = next(filter(None, (re.search(r"on port (\d+)\.", line) for line in driver.stdout)))
            opened = Browser(f"http://127.0.0.1:{found[1]}", dark)
            try:
                yield opened
            finally:
                opened.close()
        finally:
            driver.terminate()
