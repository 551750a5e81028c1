"""Makes the registered tasks known to Gymnasium, at the moment it is imported and not before.

Gymnasium has no plugins and is too heavy to import for a list of tasks, so `import genelab` leaves a note instead:
when `gymnasium` is imported, or at once if it already was, the tasks are registered with it.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in `typing`, which takes time to import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def register_when_imported() -> None:
    """Register the tasks with Gymnasium as soon as it is there."""
    if "gymnasium" in sys.modules:
        register_tasks()
    else:
        sys.meta_path.insert(0, _AfterGymnasium())


def register_tasks() -> None:
    """Give every trainable task an entry in Gymnasium's registry, for `gymnasium.make` and `make_vec`."""
    import gymnasium

    from genelab.config import TASKS

    for entry in TASKS.entries():
        if entry.backend is not None and entry.id not in gymnasium.registry:
            gymnasium.register(
                entry.id,
                entry_point="genelab.gym:Task",
                vector_entry_point="genelab.gym:make_vec",
                kwargs={"task": entry.id},
            )


class _AfterGymnasium:
    """Finds `gymnasium` as usual, once, and registers the tasks when it has been loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                register_tasks()

            spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec
