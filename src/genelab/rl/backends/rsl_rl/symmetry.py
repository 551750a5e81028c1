"""Networks that are their own mirror image: what the left side learns, the right side knows.

A mirror exchanges columns of the observation and of the action, and changes signs. Let it exchange the two halves of
every hidden layer, too. If a network's weights stay the same under that exchange, mirrored observations give mirrored
actions and the same value. Then the gradient of a mirrored batch is the mirrored gradient of the batch, so averaging
every gradient with its own mirror image teaches exactly what mirrored batches teach, at half their cost.

So is a network with memory: each of its gates is a hidden layer, and so is its state, which begins as its own image.

The network is a plain one in every other respect: checkpoints, export and inference know nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from genelab.errors import UsageError
from genelab.mdp.mirror import TensorImage
from genelab.scene.mirror import SAME, Image, beside

_SETTING = "agent.algorithm.symmetry_cfg.equivariant"


def images(augment: Callable[..., Any], env: Any, observations: Any, action_dim: int) -> tuple[dict[str, Image], Image]:
    """Of each group of observations and of the actions: what an rsl_rl symmetry function does to unit vectors."""
    device = observations.device
    count = max(action_dim, *(value.shape[1] for value in observations.values()))
    units = {name: torch.eye(count, value.shape[1], device=device) for name, value in observations.items()}
    mirrored, _ = augment(env=env, obs=type(observations)(units, batch_size=[count]), actions=None)
    _, actions = augment(env=env, obs=None, actions=torch.eye(action_dim, device=device))
    if len(mirrored) != 2 * count or len(actions) != 2 * action_dim:
        raise UsageError(f"{_SETTING}: data_augmentation_func must give one mirror image of a batch")
    of_groups = {name: _image(mirrored[name][count : count + value.shape[1]]) for name, value in units.items()}
    return of_groups, _image(actions[action_dim:])


def _image(units: Tensor) -> Image:
    """What became of each unit vector."""
    columns = units.abs().argmax(dim=0)
    signs = units[columns, torch.arange(len(columns), device=units.device)]
    image = Image(tuple(columns.tolist()), tuple(signs.tolist()))
    mirror, eye = TensorImage(image, units.device), torch.eye(len(units), device=units.device)
    if not torch.equal(mirror.of(eye), units) or not torch.equal(mirror.of(units), eye):
        raise UsageError(
            f"{_SETTING}: data_augmentation_func must exchange columns and signs, and twice must change nothing"
        )
    return image


class Tied:
    """Keeps the weights of one of rsl_rl's networks equal to their mirror image."""

    def __init__(self, model: Any, inputs: list[Image], outputs: Image | None) -> None:
        """`inputs`: images of the groups that the network sees; `outputs`: of the actions, None for a value."""
        self._model = model
        before = beside(inputs)
        *hidden, self._last = (layer for layer in model.mlp if isinstance(layer, nn.Linear))
        outputs = outputs or SAME
        unsigned = Image(outputs.columns, (1.0,) * len(outputs.signs))  # of what has a size alone, as noise has
        if self._last.out_features == 2 * len(outputs.columns):  # a standard deviation below each action
            outputs = beside([outputs, unsigned])
        device = self._last.weight.device
        self._input = TensorImage(before, device)
        self._mirrors: dict[Tensor, Callable[[Tensor], Tensor]] = {}
        self._widths: dict[Tensor, int] = {}
        if model.is_recurrent:
            for of_input, of_state, *biases in model.rnn.rnn.all_weights:
                before = self._hide(model.rnn.rnn.hidden_size, before, of_input, biases, of_state)
        for layer in hidden:
            before = self._hide(layer.out_features, before, layer.weight, [layer.bias])
        self._mirrors[self._last.weight] = _of_matrix(before, outputs, device)
        self._mirrors[self._last.bias] = TensorImage(outputs, device).of
        if model.distribution is not None:
            self._mirrors |= dict.fromkeys(model.distribution.parameters(), TensorImage(unsigned, device).of)
        for parameter, mirror in self._mirrors.items():
            parameter.register_hook(_averaging(mirror))

    def _hide(
        self, width: int, before: Image, weight: Tensor, biases: list[Tensor], of_state: Tensor | None = None
    ) -> Image:
        """Tie a hidden layer, or all gates of one with memory, which sees its own state, too; returns its image."""
        after, device = _halves(width), weight.device
        of_gates = after.repeat(len(weight) // width)
        mirrors = {weight: _of_matrix(before, of_gates, device)}
        mirrors |= dict.fromkeys(biases, TensorImage(of_gates, device).of)
        if of_state is not None:
            mirrors[of_state] = _of_matrix(after, of_gates, device)
        self._mirrors |= mirrors
        self._widths |= dict.fromkeys(mirrors, width)
        return after

    @torch.no_grad()
    def begin(self) -> None:
        """Make random weights symmetric and keep their size: half of each hidden layer becomes the other's image."""
        for parameter, width in self._widths.items():
            rows, image = (each.unflatten(0, (-1, width)) for each in (parameter, self._mirrors[parameter](parameter)))
            rows[:, width // 2 :] = image[:, width // 2 :]
        half = self._last.in_features // 2
        self._last.weight[:, half:] = self._mirrors[self._last.weight](self._last.weight)[:, half:]
        self._last.bias.copy_((self._last.bias + self._mirrors[self._last.bias](self._last.bias)) / 2)

    @torch.no_grad()
    def symmetric(self) -> bool:
        """Whether the weights are: those of a checkpoint need not be."""
        return all(torch.allclose(mirror(each), each, atol=1e-3) for each, mirror in self._mirrors.items())

    @torch.no_grad()
    def normalize_both_sides(self) -> None:
        """Give the normaliser the statistics of what it has seen and its mirror image together."""
        if not self._model.obs_normalization:
            return
        normalizer = self._model.obs_normalizer
        mean, var = normalizer._mean, normalizer._var
        apart = (mean - self._input.of(mean)) / 2
        var.copy_((var + var[:, self._input.columns]) / 2 + apart.square())
        mean -= apart
        normalizer._std = var.sqrt()


def _halves(width: int) -> Image:
    """The image of a hidden layer: its halves change places."""
    if width % 2:
        raise UsageError(f"{_SETTING}: hidden layers must have an even number of units, got {width}")
    half = width // 2
    return Image((*range(half, width), *range(half)), (1.0,) * width)


def _of_matrix(before: Image, after: Image, device: torch.device) -> Callable[[Tensor], Tensor]:
    rows, columns = TensorImage(after, device), TensorImage(before, device)
    return lambda weight: rows.of(columns.of(weight).T).T


def _averaging(mirror: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda gradient: (gradient + mirror(gradient)) / 2
