"""A watch for whatever would make the host wait for a GPU, or copy from or to it, kept on a machine without one."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import genelab

_WAIT = frozenset(
    f"aten::{name}"
    for name in (
        "_local_scalar_dense",  # item(), bool(), int(), float()
        "equal",
        "is_nonzero",
        "masked_select",
        "nonzero",
        "_unique2",
        "unique_dim",
        "lift_fresh",  # torch.tensor of numbers: from the host
    )
)
"""Operations whose result the host must know before it goes on."""
_METHODS = ("cpu", "numpy", "tolist")
"""Methods of tensors that copy to the host, or read it there."""
_PACKAGE = f"{Path(genelab.__file__).parent}/"


class Transfers(TorchDispatchMode):
    """Collects, by file and function, who asks for a transfer; what a replayed graph does is beyond it, and on the
    device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[str] = []
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Transfers:
        for name in _METHODS:
            self._patch.setattr(Tensor, name, self._noting(name, getattr(Tensor, name)))
        self._watch_warp()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._patch.undo()

    def _watch_warp(self) -> None:
        import warp as wp

        for name in ("synchronize", "synchronize_device", "synchronize_stream", "synchronize_event"):
            self._patch.setattr(wp, name, self._noting(f"wp.{name}", getattr(wp, name)))
        for name in ("numpy", "list", "assign"):
            self._patch.setattr(wp.array, name, self._noting(f"wp.array.{name}", getattr(wp.array, name)))

    def _noting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            self._note(name)
            return method(*args, **kwargs)

        return noted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        masked = name in ("aten::index", "aten::index_put", "aten::index_put_") and any(
            one is not None and one.dtype == torch.bool for one in args[1]
        )
        if name in _WAIT or masked:
            self._note(name)
        return func(*args, **(kwargs or {}))

    def _note(self, what: str) -> None:
        stack = traceback.extract_stack()
        frame = next((one for one in reversed(stack) if one.filename.startswith(_PACKAGE)), stack[0])
        self.found.append(f"{what} in {frame.filename.removeprefix(_PACKAGE)}:{frame.name}")
