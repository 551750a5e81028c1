"""Hidden layers in bfloat16: half the bits, about twice the speed where the hardware has them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def computes_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies in bfloat16 itself; emulating it would be slower than 32 bits."""
    if device.type == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


class MixedPrecision(nn.Sequential):
    """The layers of a network: the hidden ones in bfloat16, where three digits are enough.

    For the last one they are not: a policy's mean is compared with the mean before, and the difference is small.
    """

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self._hidden = max(i for i, layer in enumerate(layers) if isinstance(layer, nn.Linear))

    def forward(self, x: Tensor) -> Tensor:
        layers = list(self)
        with torch.autocast(x.device.type, torch.bfloat16):
            for layer in layers[: self._hidden]:
                x = layer(x)
        x = x.float()
        for layer in layers[self._hidden :]:
            x = layer(x)
        return x
