"""Set-up of all tests."""

import random
import shutil
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import genelab  # noqa: F401  before torch, so that torch's threads sleep while they wait
from tests.lacking import lacking

# A shell starts its background jobs deaf to Ctrl-C, and nohup makes them deaf to SIGHUP. Commands that tests send these
# signals would inherit that.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


@pytest.fixture(autouse=True)
def _no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that would open a window must not wait for somebody to close it."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _same_seeds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed that nobody gave is drawn, but a test draws the same one each time it runs."""
    monkeypatch.setattr("secrets.randbits", random.Random(request.node.nodeid).getrandbits)


@pytest.fixture
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    from selenium import webdriver

    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        lacking("no chromium: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--enable-unsafe-swiftshader"):
        options.add_argument(flag)
    options.add_argument("--window-size=1200,800")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()
