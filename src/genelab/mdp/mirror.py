"""The mirror image of what a robot sees and does, put together from what the terms tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from genelab.managers.observations import ObservationGroup
from genelab.scene import Image
from genelab.scene.mirror import beside

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv


class TensorImage:
    """A mirror image, to be made of tensors: in 32 bits, as networks are, whatever the precision of the physics is."""

    def __init__(self, image: Image, device: torch.device) -> None:
        self.columns = torch.tensor(image.columns, device=device)
        self.signs = torch.tensor(image.signs, device=device, dtype=torch.float32)

    def of(self, values: Tensor) -> Tensor:
        """The mirror image of the last dimension."""
        return values[..., self.columns] * self.signs


_IMAGES: WeakKeyDictionary[ManagerBasedRlEnv, tuple[dict[str, TensorImage], TensorImage]] = WeakKeyDictionary()


def augment(env: Any, obs: Any, actions: Tensor | None) -> tuple[Any, Tensor | None]:
    """A batch with its mirror images below it, as rsl_rl's symmetry extension wants it."""
    of_groups, of_actions = _images(env.unwrapped)
    if obs is not None:
        mirrored = obs.clone()
        for name, image in of_groups.items():
            mirrored[name] = image.of(obs[name])
        obs = torch.cat([obs, mirrored])
    if actions is not None:
        actions = torch.cat([actions, of_actions.of(actions)])
    return obs, actions


def group_image(group: ObservationGroup) -> Image:
    """The mirror image of a group of observations, all of its frames."""
    terms = (
        group.terms[term.name].meaning().image(f"the observation {term.name!r}", term.dim) for term in group.layout
    )
    return beside(terms).repeat(group.cfg.history_length)


def _images(env: ManagerBasedRlEnv) -> tuple[dict[str, TensorImage], TensorImage]:
    """Of the observations by group, and of the actions."""
    if env not in _IMAGES:
        groups = env.observation_manager.groups
        of_groups = {name: TensorImage(group_image(group), env.device) for name, group in groups.items()}
        _IMAGES[env] = (of_groups, TensorImage(env.action_manager.image(), env.device))
    return _IMAGES[env]
