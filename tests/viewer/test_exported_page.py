"""The page that `genelab export --for web` writes: from a plain file server, in a browser, the policy walks as here."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from genelab.cli.main import run
from genelab.errors import UsageError
from genelab.mdp import VelocityCommand
from genelab.mdp.clock import get_clock
from genelab.rl.locate import pretrained_policy
from genelab.rl.rollout import Rollout
from genelab.rl.world import policy_on_task
from tests.lacking import lacking
from tests.viewer.pages import GO1
from tests.viewer.waiting import eventually
from tools.pages import with_live_page

COMMAND = (0.5, 0.25, -0.5)
PHASE = 0.3
STEPS = 12


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("npm") is None:
        lacking("no npm: apt-get install nodejs npm")
    out = tmp_path_factory.mktemp("page")
    assert run(["export", GO1, "pretrained", "--for", "web", "--out", str(out), "--with", "title=A dog"]) == 0
    return out


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def address(page: Path) -> Iterator[str]:
    """What `python -m http.server` serves."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=page))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def ask(browser: Any, command: tuple[float, ...]) -> None:
    """Move the sliders as a hand does."""
    for column, value in enumerate(command):
        browser.execute_script(
            "const slider = document.querySelector(`[data-control='twist.${arguments[0]}']`);"
            "slider.value = arguments[1]; slider.dispatchEvent(new Event('input'));",
            column,
            value,
        )


def on_page(browser: Any, body: str, *values: Any) -> Any:
    """What a program on the page gives back, with the robot and the values at hand."""
    start = "const [values, done] = [[...arguments].slice(0, -1), [...arguments].at(-1)];"
    program = f"const {{ robot, pause, resume }} = window.genelab; {body}"
    return browser.execute_async_script(
        f"{start} (async () => {{ {program} }})().then(done, (error) => done(`${{error}}`));", *values
    )


def rollout_here() -> tuple[np.ndarray, np.ndarray]:
    """What the policy sees and does in the lab, from the default pose and the same moment of the clock."""
    path = pretrained_policy(GO1)
    assert path is not None
    seen, done = [], []
    with policy_on_task(GO1, path, num_envs=1) as (env, setup), torch.inference_mode():
        loop = Rollout(env, setup)
        twist, clock = env.commands.term("twist"), get_clock(env, "gait")
        assert isinstance(twist, VelocityCommand)
        twist.fix(torch.tensor([COMMAND], dtype=env.dtype))
        loop.restart(seed=0)
        env.scene.reset(None)  # without the events, which put it somewhere
        clock.phase[:] = PHASE
        clock.update()
        loop.observations = env.observation_manager.compute()
        for _ in range(STEPS):
            seen.append(loop.observations["policy"][0].numpy().copy())
            loop.step()
            done.append(env.action_manager.action[0].numpy().copy())
    return np.array(seen), np.array(done)


def test_the_robot_does_what_the_sliders_ask_and_the_loop_is_that_of_the_lab(browser: Any, address: str) -> None:
    browser.set_script_timeout(240)
    browser.get(address)
    eventually(lambda: browser.execute_script("return document.body.dataset.state ?? false"), seconds=240)
    assert browser.execute_script("return document.body.dataset.state") == "running", browser.get_log("browser")
    assert browser.title == "A dog"
    assert on_page(browser, "return robot.policy.goldenError()") < 1e-4

    # The same numbers as in the lab, step by step.
    on_page(browser, "await pause()")
    ask(browser, COMMAND)
    seen, done = on_page(
        browser,
        "robot.reset(values[0]); const [seen, done] = [[], []];"
        "for (let i = 0; i < values[1]; i++) {"
        "  done.push(await robot.step()); seen.push(robot.history.flat(2)); } return [seen, done];",
        PHASE,
        STEPS,
    )
    seen_here, done_here = rollout_here()
    assert np.abs(np.array(seen[0]) - seen_here[0]).max() < 1e-5
    assert np.abs(np.array(done[0]) - done_here[0]).max() < 1e-4
    assert np.abs(np.array(done) - done_here).max() < 0.02

    # It walks as asked, and stands when it is asked to.
    walk = (
        "for (let i = 0; i < 75; i++) await robot.step();"
        "const made = []; for (let i = 0; i < 100; i++) { await robot.step(); made.push(robot.velocity); }"
        "return [0, 1, 2].map((k) => made.reduce((sum, one) => sum + one[k], 0) / made.length);"
    )
    for asked in ((0.8, 0.0, 0.0), (0.0, -0.5, 0.0)):
        ask(browser, asked)
        assert on_page(browser, walk) == pytest.approx(asked, abs=0.1)
    browser.execute_script("document.getElementById('stop').click()")
    assert np.abs(on_page(browser, walk)).max() < 0.05
    assert on_page(browser, "return robot.fallen") is False

    # Left to itself it goes on, and shows it.
    before = on_page(browser, "resume(); return robot.steps")
    eventually(lambda: on_page(browser, "return robot.steps") > before, seconds=60)
    assert "m/s" in browser.execute_script("return document.getElementById('speed').textContent")


def test_it_runs_within_another_page_as_on_the_front_page_of_the_docs(browser: Any, page: Path, address: str) -> None:
    front = page / "front.html"
    picture = '<div class="live">a picture</div>'
    front.write_text(f"<body>{with_live_page(picture, 'index.html')}</body>")
    browser.get(f"{address}front.html")
    browser.switch_to.frame(browser.find_element("css selector", "iframe.live"))
    eventually(lambda: browser.execute_script("return document.body.dataset.state ?? false"), seconds=240)
    assert browser.execute_script("return document.body.dataset.state") == "running", browser.get_log("browser")
    browser.switch_to.default_content()
    front.unlink()


def test_it_is_files_alone_with_their_origins(page: Path) -> None:
    names = {str(path.relative_to(page)) for path in page.rglob("*") if path.is_file()}
    assert {"index.html", "page.js", "robot.js", "view.js", "style.css", "world.xml", "policy.onnx"} <= names
    packages = json.loads((page / "vendor/packages.json").read_text())
    assert [package["name"] for package in packages] == ["@mujoco/mujoco", "onnxruntime-web", "three"]
    for path in page.glob("*.*"):
        if path.suffix in (".html", ".js", ".css"):
            assert "://" not in path.read_text().replace("http://www.w3.org", ""), path  # nothing comes from elsewhere


def test_without_npm_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from genelab.rl.targets.web import Web

    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(UsageError, match="there is no npm here: install Node"):
        Web().check({})
