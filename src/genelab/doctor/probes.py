"""Questions that are answered by another process: a library that aborts takes only that one with it."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from genelab.rl.launch.process import prepare

SECONDS = 180.0
"""How long an answer may take; importing torch takes seconds, and a busy machine longer."""

TORCH = """
import json, torch
gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
assert float(torch.ones(3).sum()) == 3.0
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "gpus": gpus}))
"""
ENGINE = """
import json
from genelab.sim import ENGINES
print(json.dumps({"title": ENGINES.load(%r).called()}))
"""
LIBRARY = """
import json
from genelab.rl.backends import BACKENDS
print(json.dumps({"name": BACKENDS.entry(%r).load().name}))
"""
DRAW = """
import importlib, json, mujoco
context = importlib.import_module("mujoco.%s").GLContext(64, 48)
context.make_current()
world = '<mujoco><worldbody><light pos="0 0 3"/><geom type="sphere" size="1"/></worldbody></mujoco>'
model = mujoco.MjModel.from_xml_string(world)
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
scene, graphics = mujoco.MjvScene(model, 100), mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, graphics)
mujoco.mjr_render(mujoco.MjrRect(0, 0, 64, 48), scene, graphics)
print(json.dumps({}))
graphics.free()
context.free()
"""
WINDOW = """
import glfw, json
assert glfw.init(), "GLFW finds no display"
glfw.terminate()
print(json.dumps({}))
"""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the other process said."""

    found: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    """Why there is none, in one line."""


class Probe:
    """A question that is being answered."""

    def __init__(self, code: str, **env: str) -> None:
        self._answer: Answer | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            preexec_fn=functools.partial(prepare, os.getpid()),  # an interrupted doctor leaves no process behind
        )

    def answer(self) -> Answer:
        """Wait for it; it may be asked for again."""
        if self._answer is None:
            self._answer = self._wait()
        return self._answer

    def _wait(self) -> Answer:
        try:
            out, err = self._process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return Answer(error=f"no answer within {SECONDS:.0f} s")
        lines = [line.strip() for line in err.splitlines() if line.strip()]
        if self._process.returncode == 0:
            said = next((line for line in out.splitlines() if line.startswith("{")), None)  # libraries chat, too
            return Answer(error="it said nothing") if said is None else Answer(found=json.loads(said))
        if self._process.returncode < 0:
            return Answer(error=f"it ended with signal {-self._process.returncode}")
        return Answer(error=lines[-1][:200] if lines else f"exit code {self._process.returncode}")
