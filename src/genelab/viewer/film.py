"""A film of a playback, encoded while it is played."""

from __future__ import annotations

import importlib
import math
import os
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from genelab.config import atomic_write_bytes, check_out, writable_target
from genelab.config.files import open_temporary
from genelab.envs import ManagerBasedEnv
from genelab.errors import GenelabError, UsageError
from genelab.viewer.camera import Camera
from genelab.viewer.marks import marks_of
from genelab.viewer.offscreen import Offscreen
from genelab.viewer.puppet import Puppet

MOST_FPS = 60
"""A film has at most so many pictures per second; of a faster control loop it leaves some out."""
_CODEC = "libx264"


@dataclass(frozen=True, kw_only=True)
class FilmCfg:
    """What to film."""

    path: Path
    """A file `*.mp4`, or `*.png` for the last picture alone."""
    length: int | None = None
    """Control steps that are filmed; None: all."""
    size: tuple[int, int] = (1280, 720)
    """Width and height, pixels."""
    camera: str | None = None
    """A camera of the model, `track` or `fixed`; None: whichever suits the robot."""
    num_envs: int = 1
    """Environments that are shown side by side."""

    def check(self) -> None:
        """Refuse what could not be written in the end."""
        if self.path.suffix.lower() not in (".mp4", ".png"):
            raise UsageError(f"`film.path`: {self.path} must end in .mp4, or in .png for the last picture")
        check_out(self.path, "film.path", parents=False)
        _av()


def check_film(env: ManagerBasedEnv, cfg: FilmCfg) -> None:
    """Refuse a film that this environment cannot give, before anything is drawn."""
    _check_envs(env, cfg)
    Camera(Puppet(env.scene), cfg.camera)


def _check_envs(env: ManagerBasedEnv, cfg: FilmCfg) -> None:
    cfg.check()
    if cfg.num_envs > env.num_envs:
        raise UsageError(f"`film.num_envs={cfg.num_envs}`: there are only {env.num_envs} environments")


class Film:
    """Films a playback: real time, one picture per control step or fewer, each encoded as it comes."""

    def __init__(self, env: ManagerBasedEnv, cfg: FilmCfg, first: int = 0) -> None:
        """The first of the environments that are filmed is `first`."""
        _check_envs(env, cfg)
        self._envs = [(first + i) % env.num_envs for i in range(cfg.num_envs)]
        self.env = env
        self.cfg = cfg
        self.stride = max(1, math.ceil(1.0 / (MOST_FPS * env.step_dt) - 1e-9))
        """Control steps per picture."""
        self.fps = Fraction(1.0 / (env.step_dt * self.stride)).limit_denominator(1000)
        self.frames = 0
        self._steps = 0
        self._puppet = Puppet(env.scene)
        self._cameras = [Camera(self._puppet, cfg.camera) for _ in range(cfg.num_envs)]
        self._offscreen = Offscreen(self._puppet, cfg.size, cfg.num_envs)
        self._still = cfg.path.suffix.lower() == ".png"
        self._encoder: Encoder | None = None
        self._last: np.ndarray | None = None

    def before_step(self) -> bool:
        """A film waits for nobody."""
        return True

    def after_step(self) -> None:
        """Film what can be seen now."""
        self._steps += 1
        if self.cfg.length is not None and self._steps > self.cfg.length:
            return
        if self._still:
            self._aim()
            if self._steps == self.cfg.length:
                self._last = self.picture()
            return
        if (self._steps - 1) % self.stride:
            return
        if self._encoder is None:
            self._encoder = Encoder(self.cfg.path, self.cfg.size, self.fps)
        self._encoder.add(self.picture())
        self.frames += 1

    def picture(self) -> np.ndarray:
        """The environments as they are now, `(height, width, 3)`."""
        for i, (env, camera) in enumerate(zip(self._envs, self._cameras, strict=True)):
            self._puppet.pose(env)
            self._offscreen.draw(i, camera.aim(), marks_of(self.env, env, self._puppet.top))
        return self._offscreen.picture()

    def _aim(self) -> None:
        """Let the cameras follow without a picture."""
        for env, camera in zip(self._envs, self._cameras, strict=True):
            self._puppet.pose(env)
            camera.aim()

    def close(self) -> None:
        """Write what is still in the encoder, and give the file its name."""
        try:
            if self._still and self._steps:
                write_png(self.cfg.path, self.picture() if self._last is None else self._last)
                self.frames = 1
            if self._encoder is not None:
                self._encoder.close()
        finally:
            self._offscreen.close()


class Encoder:
    """H.264 in an MP4 file, written under a temporary name until it is complete."""

    def __init__(self, path: Path, size: tuple[int, int], fps: Fraction) -> None:
        self._av = _av()
        if _CODEC not in self._av.codecs_available:
            raise GenelabError(f"`film.path`: this build of PyAV has no {_CODEC}: pip install --force-reinstall av")
        self.path = path
        try:
            self._target = writable_target(path)
            self._temporary, self._held = open_temporary(self._target)
            self._file = self._open()
        except OSError as error:
            raise UsageError(f"`film.path`: cannot write {path}: {error.strerror}") from error
        self._stream = self._file.add_stream(_CODEC, rate=fps, options={"crf": "20", "preset": "veryfast"})
        self._stream.width, self._stream.height = size
        self._stream.pix_fmt = "yuv420p"
        self._pictures = 0
        self._broken = False

    def _open(self) -> Any:
        try:
            return self._av.open(str(self._temporary), "w", format="mp4", options={"movflags": "faststart"})
        except OSError:
            self._temporary.unlink(missing_ok=True)
            self._held.close()
            raise

    def add(self, picture: np.ndarray) -> None:
        """One more picture, `(height, width, 3)` bytes."""
        self._write(self._av.VideoFrame.from_ndarray(picture, format="rgb24"))
        self._pictures += 1

    def close(self) -> None:
        """Finish the file and give it its name; without a picture, or after one that failed, there is none."""
        try:
            if self._pictures and not self._broken:
                self._write(None)
                self._file.close()
                os.replace(self._temporary, self._target)
        except OSError as error:
            raise self._failure(error) from error
        finally:
            self._temporary.unlink(missing_ok=True)
            self._held.close()

    def _write(self, frame: Any) -> None:
        try:
            for packet in self._stream.encode(frame):
                self._file.mux(packet)
        except OSError as error:
            self._broken = True
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> GenelabError:
        return GenelabError(f"`film.path`: cannot write {self.path}: {error.strerror}")


def write_png(path: Path, picture: np.ndarray) -> None:
    """A picture as a PNG file."""
    av = _av()
    codec = av.CodecContext.create("png", "w")
    codec.height, codec.width = picture.shape[:2]
    codec.pix_fmt, codec.time_base = "rgb24", Fraction(1, 25)
    packets = [*codec.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")), *codec.encode(None)]
    try:
        atomic_write_bytes(path, b"".join(bytes(packet) for packet in packets))
    except OSError as error:
        raise GenelabError(f"`film.path`: cannot write {path}: {error.strerror}") from error


def parse_size(text: str) -> tuple[int, int]:
    """Width and height from `1280x720`; both even, which the encoder needs."""
    match = re.fullmatch(r"(\d+)x(\d+)", text.strip().lower())
    if match is None:
        raise UsageError(f"`film.size`: {text!r} is no size; write it like 1280x720")
    width, height = int(match[1]), int(match[2])
    if width % 2 or height % 2 or not (16 <= width <= 7680 and 16 <= height <= 4320):
        raise UsageError(f"`film.size`: {text}: both must be even, from 16x16 to 7680x4320")
    return width, height


def _av() -> Any:
    try:
        return importlib.import_module("av")
    except ImportError as error:
        raise UsageError("a film needs an encoder, PyAV: pip install 'genelab[video]'") from error
