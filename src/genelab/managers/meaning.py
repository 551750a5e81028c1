"""What terms tell about their columns: for metadata, tables, and mirror images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from genelab.errors import ConfigError
from genelab.scene.mirror import Image

XYZ = ("x", "y", "z")
"""Names of the columns of a vector."""


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What stands in the columns of an observation, a command or an action; what is not told is left empty."""

    unit: str | tuple[str, ...] = ""
    """Unit of all columns, or of each: SI, "1" for pure numbers."""
    frame: str = ""
    """The frame that a vector is given in: `root`, `world`, or the name of a sensor."""
    columns: tuple[str, ...] = ()
    """Names of the columns."""
    formula: str = ""
    """How it is computed, in words; the first paragraph of the docstring if nothing else is said."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """For programs: how it is read off a MuJoCo model or made, a `kind` and the names and numbers that this needs. The
    kinds are those of `genelab.rl.targets.run`; a term of another kind is filled in by who runs the policy."""
    mirror: Image | Callable[[], Image] | None = None
    """Its mirror image, or a function that finds it, which is called when somebody asks."""

    @property
    def text(self) -> str:
        """Units and frame, for a table."""
        units = (self.unit,) if isinstance(self.unit, str) else dict.fromkeys(self.unit)
        return ", ".join(units) + (f" ({self.frame})" if self.frame else "")

    def image(self, what: str, dim: int) -> Image:
        """The mirror image of `dim` columns; `what` they are is for the error if it is not told."""
        image = self.mirror() if callable(self.mirror) else self.mirror
        if image is None:
            same = "SAME" if dim == 1 else f"SAME.repeat({dim})"
            raise ConfigError(
                f"the mirror image of {what} is not known. If left and right are the same to it, tell so: "
                f"@observation(mirror={same}), or Meaning(mirror={same}) of an action or a command, with SAME of "
                "genelab.scene. Or learn without symmetry: `agent.algorithm.symmetry_cfg=none`"
            )
        if not len(image.columns) == len(image.signs) == dim:
            raise ConfigError(f"the mirror image of {what} has {len(image.columns)} columns, but {what} has {dim}")
        return image


Term = TypeVar("Term", bound=Callable[..., Any])


def observation(
    meaning: Callable[..., Meaning] | None = None,
    *,
    unit: str | tuple[str, ...] = "",
    frame: str = "",
    columns: tuple[str, ...] = (),
    formula: str = "",
    source: Mapping[str, Any] | None = None,
    mirror: Image | None = None,
) -> Callable[[Term], Term]:
    """Decorate the function or class of an observation with what its columns are.

    What depends on the scene or on the term's parameters is told by a function `meaning`, which is called with those of
    `env` and the parameters that it names. A class may have it as a method instead.
    """
    told: Any = meaning or Meaning(
        unit=unit, frame=frame, columns=columns, formula=formula, source=source or {}, mirror=mirror
    )

    def mark(term: Term) -> Term:
        term.meaning = staticmethod(told) if isinstance(term, type) and callable(told) else told  # type: ignore[attr-defined]
        return term

    return mark
