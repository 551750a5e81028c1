"""What objects remember, to stop a run and go on as if it had not stopped.

Whoever remembers has `state_dict()` and `load_state_dict(state)`. `Stateful` writes both: it keeps every attribute that
is a tensor, a number, a string, None, a sequence or dict of them, or an object of such attributes, and it refuses by
name what it cannot keep. Classes that know nothing of this, a third party's term for one, are treated alike.

Left out is what is no memory: what a class names in `not_state`, configs, functions, random generators, and whatever
has a place of its own in the environment (robots, sensors, commands, managers, the engine): it is kept there.

A state is plain data that `torch.load(weights_only=True)` reads. Its tensors are the live ones, so whoever keeps it
takes a `snapshot`; tensors that two objects share are shared again after loading.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor

from genelab.errors import GenelabError, summary

_PLAIN = (Tensor, bool, int, float, str, type(None))
_NO_MEMORY = (
    functools.partial,
    weakref.ref,
    BuiltinFunctionType,
    FunctionType,
    MethodType,
    ModuleType,
    type,
    slice,
    range,
    torch.Generator,
    torch.device,
    torch.dtype,
    torch.Size,
)
_NAMES_OF_NO_MEMORY = ("cfg", "cfgs", "env", "_env")
_HEAP_TYPE = 1 << 9
"""CPython's flag of types that a class statement makes."""
_OBJECT, _DEQUE, _ELSEWHERE = "<object>", "<deque>", "<elsewhere>"
"""Keys of a dict that stands for something else."""
_open: set[int] = set()
"""Objects that are being walked: what leads back to them is not theirs to keep."""


class StateError(GenelabError):
    """A state that cannot be kept or does not fit; `{where}` in the message is the path to the culprit."""

    def __init__(self, message: str, *path: str) -> None:
        super().__init__(message.replace("{where}", ".".join(path) or "it"))
        self._message, self._path = message, path

    def below(self, name: str) -> StateError:
        """The same, seen from the owner."""
        return StateError(self._message, name, *self._path)


class Stateful:
    """Has a place in the environment, and remembers."""

    parts: ClassVar[tuple[str, ...]] = ()
    """Attributes that hold what has its place below this one: a part, a dict of parts, or None."""
    not_state: ClassVar[tuple[str, ...]] = ()
    """Attributes that are no memory: caches, constants, what leads elsewhere."""

    def state_dict(self) -> dict[str, Any]:
        """What it remembers, and its parts."""
        return keep_attributes(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to what `state_dict` gave."""
        load_attributes(self, state)


def state_of(value: Any) -> dict[str, Any]:
    """What an object remembers, in its own words if it has some."""
    if isinstance(value, Stateful):
        return value.state_dict()
    return _keep(value.state_dict()) if _speaks(value) else keep_attributes(value)


def load_state(value: Any, state: Mapping[str, Any]) -> None:
    """Let an object go back to what `state_of` gave."""
    if isinstance(value, Stateful):
        value.load_state_dict(state)
    elif _speaks(value):
        try:
            value.load_state_dict(_restored(None, state))
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise _another(f"{{where}} does not take it: {summary(error)[:200]}") from error
    else:
        load_attributes(value, state)


def snapshot(state: Any, device: torch.device | str = "cpu") -> Any:
    """The same state with copies of its tensors on a device; those that are the same tensor stay the same."""
    copies: dict[int, Tensor] = {}

    def copied(value: Any) -> Any:
        if isinstance(value, Tensor):
            if id(value) not in copies:
                copies[id(value)] = value.detach().to(device, copy=True)
            return copies[id(value)]
        if isinstance(value, Mapping):
            return {key: copied(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            items = [copied(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        return value

    return copied(state)


@contextmanager
def undone(owners: Sequence[Any], but: Tensor | None = None) -> Iterator[None]:
    """Undo what the block does to the memory of these objects.

    Args:
        owners: Objects with a memory.
        but: Environments that keep the change, a mask `(N,)`, in tensors with a row for each environment.
    """
    before = [state_of(owner) for owner in owners]
    contents = {path: (tensor, tensor.clone()) for path, tensor in _tensors(before)}
    yield
    if but is not None:
        for path, changed in _tensors([state_of(owner) for owner in owners]):
            if path in contents:
                tensor, content = contents[path]
                contents[path] = tensor, _with_rows(content, changed, but)
    with torch.inference_mode():  # writes to tensors of any mode
        for tensor, content in contents.values():
            if tensor.is_contiguous() or 0 not in tensor.stride():  # others are views that nobody can have written to
                tensor.copy_(content)
    for owner, state in zip(owners, before, strict=True):
        load_state(owner, state)


def _with_rows(values: Tensor, changed: Tensor, rows: Tensor) -> Tensor:
    """The values with these rows as they are in the changed ones, if they have a row for each environment."""
    if values.shape != changed.shape or values.shape[:1] != rows.shape:
        return values
    return torch.where(rows.view(-1, *[1] * (values.dim() - 1)), changed, values)


def _tensors(state: Any, *path: Any) -> Iterator[tuple[tuple[Any, ...], Tensor]]:
    """The tensors of a state, each with the keys that lead to it."""
    if isinstance(state, Tensor):
        yield path, state
    elif isinstance(state, Mapping | list | tuple):
        for key, item in state.items() if isinstance(state, Mapping) else enumerate(state):
            yield from _tensors(item, *path, key)


def settle(owner: Any) -> None:
    """Mark an object and its parts as having their place: where others hold them, they are not theirs to keep."""
    with suppress(AttributeError):
        owner._attributes_at_start = frozenset(vars(owner))
    for name in getattr(type(owner), "parts", ()):
        part = getattr(owner, name)
        for one in part.values() if isinstance(part, Mapping) else () if part is None else (part,):
            settle(one)


def _speaks(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _is_memory(value: Any) -> bool:
    frozen = dataclasses.is_dataclass(value) and getattr(value, "__dataclass_params__").frozen  # noqa: B009
    elsewhere = id(value) in _open or hasattr(value, "_attributes_at_start")
    return not (isinstance(value, _NO_MEMORY) or frozen or elsewhere)


def _is_open_book(value: Any) -> bool:
    """Whether its attributes are all there is to an object: it is Python's all through, and is pickled as any is."""
    kind: Any = type(value)
    usual = kind.__reduce__ is object.__reduce__ and kind.__reduce_ex__ is object.__reduce_ex__
    return usual and hasattr(value, "__dict__") and all(base.__flags__ & _HEAP_TYPE for base in kind.__mro__[:-1])


def _names(owner: Any) -> Iterable[str]:
    """The attributes of an object that may be memory."""
    left_out = {name for kind in type(owner).__mro__ for name in vars(kind).get("not_state", ())}
    left_out.update(_NAMES_OF_NO_MEMORY, getattr(type(owner), "parts", ()), ("_attributes_at_start",))
    return [name for name in vars(owner) if name not in left_out]


# -- keeping


def keep_attributes(owner: Any, names: Iterable[str] | None = None) -> dict[str, Any]:
    """The attributes of these names, or all that are memory, and the parts."""
    state = {}
    with _walking(owner):
        for name in _names(owner) if names is None else names:
            value = vars(owner)[name]
            if _is_memory(value):
                with _at(name):
                    state[name] = _keep(value)
        for name in getattr(type(owner), "parts", ()):
            with _at(name):
                state[name] = _keep_part(getattr(owner, name))
    return state


def _keep_part(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return None if part is None else state_of(part)
    state = {}
    for name, one in part.items():
        with _at(name):
            state[name] = state_of(one)
    return state


def _keep(value: Any) -> Any:
    if isinstance(value, Tensor) or type(value) in _PLAIN:
        return value
    if isinstance(value, float):
        return float(value)  # numpy has a subclass
    if isinstance(value, deque):
        return {_DEQUE: [_keep_item(i, item) for i, item in enumerate(value)], "maxlen": value.maxlen}
    if isinstance(value, list | tuple):
        items = [_keep_item(i, item) for i, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str | int | float | bool):
                raise StateError("{where} cannot be kept: " + f"a dict with a key of type {type(key).__name__}")
        return {key: _keep_item(key, item) for key, item in value.items()}
    if _speaks(value) or _is_open_book(value):
        return {_OBJECT: state_of(value)}
    raise StateError(
        "{where} cannot be kept: "
        + f"it is a {type(value).__name__}. Keep tensors, numbers, strings, sequences and dicts of them, name it in "
        "`not_state` of its class, or give it `state_dict` and `load_state_dict`."
    )


def _keep_item(key: Any, item: Any) -> Any:
    with _at(key):
        return _keep(item) if _is_memory(item) else {_ELSEWHERE: type(item).__name__}


# -- going back


def load_attributes(owner: Any, state: Mapping[str, Any], names: Iterable[str] | None = None) -> None:
    """Go back to what `keep_attributes` gave."""
    parts = getattr(type(owner), "parts", ())
    if not isinstance(state, Mapping):
        raise _another("{where} is no state")
    with _walking(owner):
        kept = list(names or _names(owner))
        memory = [name for name in kept if _is_memory(vars(owner)[name])]
        for name in (*memory, *parts):
            if name not in state:
                if name in parts or name in getattr(owner, "_attributes_at_start", ()):
                    raise _another("{where} is not in it", name)
                delattr(owner, name)  # it was made on first use, later
        for name, saved in state.items():
            with _at(name):
                if name in parts:
                    _load_part(getattr(owner, name), saved)
                elif name in vars(owner) and name not in kept:
                    raise _another("{where} is no memory here")  # a file could change the config so
                else:
                    setattr(owner, name, _restored(vars(owner).get(name), saved))


def _load_part(part: Any, saved: Any) -> None:
    if isinstance(part, Mapping):
        if not isinstance(saved, Mapping):
            raise _another("{where} is no state")
        for name in dict.fromkeys((*part, *saved)):
            if name not in saved or name not in part:
                raise _another("{where} is not in it" if name in part else "there is no {where} here", name)
            with _at(name):
                load_state(part[name], saved[name])
    elif part is not None and saved is not None:
        load_state(part, saved)
    elif part is not None or saved is not None:
        raise _another("there is no {where} here" if part is None else "{where} is not in it")


def _restored(here: Any, saved: Any) -> Any:
    """The saved value; into what is here where that is an object or a list, for others may hold it, too."""
    # None says nothing of what an attribute may be later; a tensor, a number or a text stays one.
    for kinds in (Tensor,), (bool, int, float), (str,):
        if isinstance(here, kinds) and not isinstance(saved, kinds) and saved is not None:
            raise _another(f"{{where}} is a {type(saved).__name__} there and a {type(here).__name__} here")
    if isinstance(saved, Tensor):
        if isinstance(here, Tensor) and here.shape != saved.shape:
            raise _another(f"{{where}} has the shape {tuple(saved.shape)} there and {tuple(here.shape)} here")
        return saved
    if isinstance(saved, Mapping) and _OBJECT in saved:
        if isinstance(here, _PLAIN) or not _is_memory(here):
            raise _another("there is no {where} here; an object that remembers is made in `__init__`")
        load_state(here, saved[_OBJECT])
        return here
    if isinstance(saved, Mapping) and _DEQUE in saved:
        items = _items(list(here) if isinstance(here, deque) else (), saved[_DEQUE])
        if isinstance(here, deque) and here.maxlen == saved.get("maxlen"):
            here.clear()
            here.extend(items)
            return here
        return deque(items, saved.get("maxlen"))
    if isinstance(saved, Mapping):
        values = {key: _item(here.get(key) if isinstance(here, dict) else None, key, saved[key]) for key in saved}
        if isinstance(here, dict):
            here.clear()
            here.update(values)
            return here
        return values
    if isinstance(saved, list | tuple):
        found = _items(here if isinstance(here, list | tuple) else (), saved)
        if isinstance(here, list) and isinstance(saved, list):
            here[:] = found
            return here
        if isinstance(saved, tuple):
            return type(here)(*found) if hasattr(here, "_fields") else tuple(found)
        return found
    return saved


def _items(here: Any, saved: Any) -> list[Any]:
    return [_item(here[i] if i < len(here) else None, i, item) for i, item in enumerate(saved)]


def _item(here: Any, key: Any, saved: Any) -> Any:
    with _at(key):
        if isinstance(saved, Mapping) and _ELSEWHERE in saved:
            if type(here).__name__ != saved[_ELSEWHERE]:
                raise _another(f"{{where}} is a {saved[_ELSEWHERE]} there, and here it is not")
            return here
        # A list may hold another tensor at each place than it did: only objects are looked for.
        return _restored(None if isinstance(here, Tensor) else here, saved)


def _another(reason: str, *path: str) -> StateError:
    return StateError(f"the saved state is of another environment: {reason}", *path)


@contextmanager
def _walking(owner: Any) -> Iterator[None]:
    _open.add(id(owner))
    try:
        yield
    finally:
        _open.discard(id(owner))


@contextmanager
def _at(name: Any) -> Iterator[None]:
    """Tell in an error that it happened below this name."""
    try:
        yield
    except StateError as error:
        raise error.below(str(name)) from None
