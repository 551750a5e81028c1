"""Set-up of all tests."""

import random

import pytest

import genelab  # noqa: F401  before torch, so that torch's threads sleep while they wait


@pytest.fixture(autouse=True)
def _no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that would open a window must not wait for somebody to close it."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _same_seeds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed that nobody gave is drawn, but a test draws the same one each time it runs."""
    monkeypatch.setattr("secrets.randbits", random.Random(request.node.nodeid).getrandbits)
