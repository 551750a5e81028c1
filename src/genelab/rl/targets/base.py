"""What a target is: it makes of a policy the files that somebody else's program reads.

A target is one file with one class, registered by its path:

    from genelab.rl.targets import Parcel, Target, register_target

    class MyStack(Target):
        name = "mystack"

        def files(self, parcel: Parcel) -> dict[str, bytes]:
            policy = parcel.policy.write("onnx")  # compared with the live policy, its metadata inside
            joints = policy.metadata["actions"][0]["joint_names"]
            return {"policy.onnx": policy.data, "joints.txt": "\\n".join(joints).encode()}

    register_target("mystack", "my_stack:MyStack", about="a folder for MyStack")

`genelab export TASK CKPT --import my_stack.py --for mystack --out DIR` then writes `DIR/policy.onnx` and
`DIR/joints.txt`, both or none. What a target gets:

- `parcel.policy.write(format, opset=, batch=, props=)`: the policy as a file with `data` and full `metadata`, for any
  checkpoint, and for exported ones as far as they can become it. `batch` is "static", one robot, unless it is given.
- `parcel.policy.metadata`: all that a deployer has to know (docs/eval-and-export.md), as plain values.
- `parcel.policy.env`: the task's play config, open, with 8 environments; `env.scene.spec` is the MJCF of the world.
- `parcel.world()`: that MJCF with its meshes as files, `world.xml` and `assets/...`. Only files below the folders of
  the models and below `--assets` are copied.
- `parcel.settings`: the settings of its registration, with what the user gave.
- `parcel.source`, `parcel.overrides`: for who wants to evaluate or film the policy with the same settings.

What the stack cannot express is refused with a `UsageError` that names it: an observation term that the stack does not
know, for one. Nothing is written then. `check` refuses what can be seen before anything is built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from genelab.rl.exportable import ExportablePolicy
from genelab.scene.pack import pack


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """What a target gets."""

    policy: ExportablePolicy
    settings: Mapping[str, Any]
    """Its own, see `register_target`."""
    overrides: Mapping[str, Any]
    """Of the task's config, as the user gave them."""
    notify: Callable[[str], None]
    """Takes a line for the user."""
    assets: Sequence[Path] = ()
    """Folders besides the models' own whose meshes and textures may be copied."""

    def world(self) -> dict[str, bytes]:
        """Return the MJCF of the world and the files of its meshes and textures, by their names beside it."""
        scene = self.policy.env.scene
        return pack(scene.spec, [*scene.model_dirs, *self.assets])

    @property
    def task(self) -> str:
        """The task's id."""
        return self.policy.task

    @property
    def source(self) -> Path:
        """The checkpoint or exported file."""
        return self.policy.source


class Target(ABC):
    """Somebody who reads policies."""

    name: ClassVar[str]
    """What users type."""

    def check(self, settings: Mapping[str, Any]) -> None:  # noqa: B027  most have nothing to refuse
        """Refuse what cannot work before anything is built: a program that is missing, for one."""

    @abstractmethod
    def files(self, parcel: Parcel) -> Mapping[str, bytes]:
        """The files of the export, by their paths in its directory, with `/` between parts."""

    def next_steps(self, out: Path, metadata: Mapping[str, Any]) -> Sequence[str]:
        """What to do with the directory, as lines for the user."""
        return ()
