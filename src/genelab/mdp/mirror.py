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

TensorImage = tuple[Tensor, Tensor]
"""Where each column comes from, and its sign."""

_IMAGES: WeakKeyDictionary[ManagerBasedRlEnv, tuple[dict[str, TensorImage], TensorImage]] = WeakKeyDictionary()


def augment(env: Any, obs: Any, actions: Tensor | None) -> tuple[Any, Tensor | None]:
    """A batch with its mirror images below it, as rsl_rl's symmetry extension wants it."""
    of_groups, of_actions = _images(env.unwrapped)
    if obs is not None:
        mirrored = obs.clone()
        for name, (columns, signs) in of_groups.items():
            mirrored[name] = obs[name][:, columns] * signs
        obs = torch.cat([obs, mirrored])
    if actions is not None:
        columns, signs = of_actions
        actions = torch.cat([actions, actions[:, columns] * signs])
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
        of_groups = {name: _tensors(group_image(group), env) for name, group in groups.items()}
        _IMAGES[env] = (of_groups, _tensors(env.action_manager.image(), env))
    return _IMAGES[env]


def _tensors(image: Image, env: ManagerBasedRlEnv) -> TensorImage:
    """In 32 bits, as networks are, whatever the precision of the physics is."""
    columns = torch.tensor(image.columns, device=env.device)
    return columns, torch.tensor(image.signs, device=env.device, dtype=torch.float32)
