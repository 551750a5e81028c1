"""Makes the registered tasks known to Gymnasium, at the moment it is imported and not before.

Gymnasium has no plugins and is too heavy to import for a list of tasks, so `import genelab` leaves a note instead:
when `gymnasium` is imported, or at once if it already was, the tasks are registered with it, and from then on each task
as it comes: that of a notebook, say.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in `typing`, which takes time to import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from genelab.config import TaskEntry


def register_when_imported() -> None:
    """Register the tasks with Gymnasium as soon as it is there."""
    if "gymnasium" in sys.modules:
        register_tasks()
    else:
        sys.meta_path.insert(0, _AfterGymnasium())


def register_tasks() -> None:
    """Give every trainable task an entry in Gymnasium's registry, for `gymnasium.make` and `make_vec`."""
    from genelab.config import TASKS

    for entry in TASKS.entries():
        _register(entry)
    TASKS.watchers.append(_register)


def _register(entry: TaskEntry) -> None:
    import contextlib

    import gymnasium

    if entry.backend is None or entry.id in gymnasium.registry:
        return
    with contextlib.suppress(gymnasium.error.Error):  # an id that Gymnasium does not allow, one with a blank
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
