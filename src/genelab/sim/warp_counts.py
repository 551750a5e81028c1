"""What went wrong in MuJoCo Warp, counted on the device and looked at when the numbers have arrived."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

_ROOM = {
    "nconmax": ("BROADPHASE", "NARROWPHASE", "CCD"),
    "njmax": ("NEFC", "NJMAX_NNZ"),
    "contact_matches": ("CONTACT_MATCH",),
    "": ("HFIELD", "EPA_HORIZON"),
}
"""Which setting gives more room to what overflows; some have a fixed size."""
_KINDS = tuple(kind for kinds in _ROOM.values() for kind in kinds)
_SETTINGS = "env.simulation.engine_settings.warp"


class Counts:
    """Steps whose solver did not converge, and steps that a buffer was too small for."""

    def __init__(self, sizes: Mapping[str, int], device: torch.device) -> None:
        """`sizes` are those in use, by the names of the settings."""
        from mujoco_warp import OverflowType

        on_gpu = device.type != "cpu"
        self._sizes = sizes
        self._bits = torch.tensor([int(OverflowType[kind]) for kind in _KINDS], dtype=torch.int32, device=device)
        self._counts = torch.zeros(1 + len(_KINDS), dtype=torch.int64, device=device)
        self._sent = torch.zeros(self._counts.shape, dtype=torch.int64, pin_memory=on_gpu)
        self._arrived = self._sent.numpy()  # the same memory, of the host
        self._arrival = torch.cuda.Event() if on_gpu else None
        self._seen = [0] * len(self._arrived)
        self._remarked: dict[str, int] = {}

    def add(self, at_limit: Tensor, overflow: Tensor) -> None:
        """Add the environments whose solver ended at its limit, and those with bits of `overflow`, which is cleared."""
        self._counts[0] += at_limit.sum()
        self._counts[1:] += ((overflow[:, None] & self._bits) != 0).sum(dim=0)
        overflow.zero_()
        self._sent.copy_(self._counts, non_blocking=True)
        if self._arrival is not None:
            self._arrival.record()

    def _latest(self) -> list[int]:
        """The counts that have arrived; on a GPU they may be a step old."""
        if self._arrival is None or self._arrival.query():
            self._seen = [int(count) for count in self._arrived]
        return self._seen

    @property
    def unconverged(self) -> int:
        return self._latest()[0]

    @property
    def overflows(self) -> dict[str, int]:
        """Control steps of single environments in which a buffer was too small, by what overflowed; zeros left out."""
        return {kind: count for kind, count in zip(_KINDS, self._latest()[1:], strict=True) if count}

    def remarks(self) -> Iterator[str]:
        """What to tell the user of overflows: at the first, and whenever there are ten times as many."""
        overflows = self.overflows
        if not overflows:
            return
        for setting, kinds in _ROOM.items():
            count = sum(overflows.get(kind, 0) for kind in kinds)
            if count and count >= 10 * self._remarked.get(setting, 0):
                self._remarked[setting] = count
                yield f"MuJoCo Warp dropped contacts in {count} steps of environments: {self._remedy(setting)}"

    def _remedy(self, setting: str) -> str:
        if not setting:
            return "two geoms touch in more points than it has room for; give them simpler shapes"
        return f"raise `{_SETTINGS}.{setting}` above {self._sizes[setting]}"
