"""What annotations say, for overrides and JSON alike."""

import builtins
import collections.abc
import functools
import importlib
import inspect
import operator
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

SEQUENCES = (list, tuple, collections.abc.Sequence)
MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
CALLABLES = (collections.abc.Callable, type)


class _UnknownMeta(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls  # `torch.Tensor` is unknown where `torch` is


class Unknown(metaclass=_UnknownMeta):
    """Stands in an annotation for a name that is imported only under TYPE_CHECKING: as good as `Any`."""


class Namespace(dict[str, Any]):
    """Names for annotations: what is not there is `Unknown`."""

    def __missing__(self, name: str) -> Any:
        return Unknown


UNTYPED = (Any, object, Unknown)


@dataclass(frozen=True)
class OneOf:
    """`Annotated[str, OneOf(names)]` is a `Literal` whose choices are asked for when they are needed: a registry's."""

    names: Callable[[], Sequence[str]]


@functools.cache
def field_types(cls: type, *, with_bounds: bool = False) -> Mapping[str, Any]:
    """The annotated type of each field of a dataclass; `Any` where the annotation cannot be resolved.

    What `Annotated` adds to a type is left out, unless it is a choice or the bounds are asked for.
    """
    resolved = {}
    for field in fields(cls):
        owner = next(
            c for c in reversed(cls.__mro__) if vars(c).get("__dataclass_fields__", {}).get(field.name) is field
        )
        module = sys.modules.get(owner.__module__)
        names = {**vars(owner), **vars(builtins), **(vars(module) if module else {})}
        resolved[field.name] = resolve(field.type, names, with_bounds=with_bounds)
    return types.MappingProxyType(resolved)


def resolve(annotation: Any, names: Mapping[str, Any], *, with_bounds: bool = False) -> Any:
    """What an annotation means where these names are known; `Any` if that cannot be told."""
    holder = type("holder", (), {"__annotations__": {"it": annotation}})
    try:
        hint = get_type_hints(holder, {}, Namespace(names), include_extras=True)["it"]
        if with_bounds or _one_of(hint) is not None:
            return hint
        return get_type_hints(holder, {}, Namespace(names))["it"]
    except (NameError, AttributeError, TypeError, SyntaxError):
        return Any


class ParameterTypes(dict[str, Any]):
    """The types of a term's parameters by name, in the place of one type for all of them."""


def parameter_types(func: Any) -> ParameterTypes:
    """The annotated types of what a term is called with: a function, or a class whose instances are called."""
    call = inspect.unwrap(func.__call__ if isinstance(func, type) else func)
    names = {**vars(builtins), **getattr(call, "__globals__", {})}
    return ParameterTypes({key: resolve(hint, names) for key, hint in getattr(call, "__annotations__", {}).items()})


def choices_of(hint: Any) -> tuple[Any, ...] | None:
    """What a value may be, if the annotation lists it or says where the list is; None if it does neither."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    rule = _one_of(hint)
    return None if rule is None else tuple(rule.names())


def _one_of(hint: Any) -> OneOf | None:
    rules = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((rule for rule in rules if isinstance(rule, OneOf)), None)


def origin_of(hint: Any) -> Any:
    """`list` for `list[int]`; a type without arguments is its own origin."""
    return get_origin(hint) or hint


def union_members(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union; a type that is not a union is its only alternative."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def only_member(hint: Any, kinds: tuple[Any, ...]) -> Any:
    """The one alternative of a union that is of these kinds; `Any` if there is none or more than one."""
    found = [member for member in union_members(hint) if origin_of(member) in kinds]
    return found[0] if len(found) == 1 else Any


def element_types(hint: Any, length: int) -> list[Any] | None:
    """Types annotated for the elements of a list or tuple of this length; None if the annotation has another length."""
    sequence = only_member(hint, SEQUENCES)
    args = get_args(sequence)
    if get_origin(sequence) is tuple and args[-1:] != (...,):
        return list(args) if len(args) == length else None
    return [args[0] if args else Any] * length


def value_type(hint: Any) -> Any:
    """The type annotated for the values of a dict."""
    args = get_args(only_member(hint, MAPPINGS))
    return args[1] if args else Any


def import_name(name: str) -> Any:
    """The object that "module:qualified.name" stands for; fails as the import or the look-up does."""
    module, _, qualname = name.partition(":")
    if not (module and qualname):
        raise ValueError(f"{name!r} is not of the form 'module:name'")
    return operator.attrgetter(qualname)(importlib.import_module(module))


def names_in(node: Any) -> Iterator[str]:
    """Every function and class that a config names or is made of, as "module:name"."""
    if is_config(node):
        yield _name(type(node))
        yield from names_in(list(vars(node).values()))
    elif isinstance(node, dict):
        yield from names_in(list(node.values()))
    elif isinstance(node, list | tuple):
        for item in node:
            yield from names_in(item)
    elif isinstance(node, Enum):
        yield _name(type(node))
    elif callable(node):
        yield _name(node)


def _name(obj: Any) -> str:
    return f"{getattr(obj, '__module__', None)}:{getattr(obj, '__qualname__', None)}"


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; lists and tuples count alike, as do whole numbers for real ones."""
    if isinstance(value, bool | None):
        kinds = [origin_of(member) for member in union_members(hint)]
        return type(value) in kinds or any(kind in UNTYPED for kind in kinds) or _is_choice(value, hint)
    return any(_fits(value, member) for member in union_members(hint))


def _fits(value: Any, hint: Any) -> bool:
    kind = origin_of(hint)
    if choices_of(hint) is not None:
        return _is_choice(value, hint)
    if kind in CALLABLES:
        return isinstance(value, type) if kind is type else callable(value)
    if kind in SEQUENCES:
        kinds = element_types(hint, len(value)) if isinstance(value, list | tuple) else None
        return kinds is not None and all(map(fits, value, kinds))
    if kind in MAPPINGS:
        return isinstance(value, dict) and all(fits(item, value_type(hint)) for item in value.values())
    if kind is float:
        return isinstance(value, int | float)
    return kind in UNTYPED or not isinstance(kind, type) or isinstance(value, kind)


def _is_choice(value: Any, hint: Any) -> bool:
    choices = [choice for member in union_members(hint) for choice in choices_of(member) or ()]
    return any(type(value) is type(choice) and value == choice for choice in choices)


def join_path(path: str, key: object) -> str:
    """The dotted path of a key one level below `path`."""
    return f"{path}.{key}" if path else str(key)


def is_config(node: Any) -> bool:
    """Whether this is a config object, not a class of them."""
    return is_dataclass(node) and not isinstance(node, type)
