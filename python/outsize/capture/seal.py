"""What Python state a step can reach, and whether a capture has changed it.

    seal = Seal({"step": step, "model": model}); ...capture...
    seal.changes()   # ["model.hist: item 3 added"]      seal.restore()   # puts all of it back

It walks closures, used globals, module and object attributes, lists and dicts, and keeps a shallow copy
of each container. Tensors are leaves here (their content is the recorder's business). Generators of
random numbers are compared by state.
"""

from __future__ import annotations

import collections
import copy
import functools
import os
import random
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from outsize.capture.storages import has_storage, storage_address

SIMPLE = (type(None), bool, int, float, str, bytes, complex, torch.dtype, torch.device)
_SKIPPED = (type, types.ModuleType, types.BuiltinFunctionType, torch.Tensor, torch.Size)
_HOOK_ATTRIBUTES = frozenset(torch.nn.Module().__dict__) - {
    "_parameters",
    "_buffers",
    "_modules",
    "training",
}
_LIBRARIES = tuple(
    {
        os.path.realpath(path) + os.sep
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        if (path := sysconfig.get_paths().get(name))
    }
)
# Their options are part of the signature, or read at each call.
_UNGUARDED = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
_LONGEST_LIST = 4096  # items; what longer lists hold is not guarded
_MOST_CONTAINERS = 400_000


def is_library(file: str) -> bool:
    """Whether a source file belongs to Python or to an installed package."""
    return bool(file) and os.path.realpath(file).startswith(_LIBRARIES)


def is_user_code(code: types.CodeType) -> bool:
    return not is_library(code.co_filename) and not code.co_filename.startswith("<frozen")


def code_names(code: types.CodeType) -> Iterator[str]:
    """Names and short strings that a function's code mentions, nested functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_names(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            yield constant


@dataclass
class Container:
    """One mutable thing that the step can reach, and a shallow copy of it."""

    path: str
    kind: str  # "attributes", "dict", "list", "set", "cell", "globals", "generator", "iterator"
    object: Any
    copy: Any
    guarded: bool  # simple values in it are part of what the capture holds for


@dataclass(frozen=True)
class Place:
    """A simple value that the step may have read: the capture holds while it stays."""

    path: str
    container: Container
    key: Any

    def get(self) -> Any:
        target, kind = self.container.object, self.container.kind
        if kind == "cell":
            return target.cell_contents
        if kind == "attributes":
            return vars(target).get(self.key, Missing)
        if kind == "list":
            return target[self.key] if self.key < len(target) else Missing
        return target.get(self.key, Missing)

    def before(self) -> Any:
        """The value when the seal was made."""
        kept = self.container.copy
        return kept if self.container.kind == "cell" else kept[self.key]

    def set(self, value: Any) -> None:
        target, kind = self.container.object, self.container.kind
        if kind == "cell":
            target.cell_contents = value
        elif kind == "attributes":
            vars(target)[self.key] = value
        else:
            target[self.key] = value


@dataclass(frozen=True)
class Change:
    """One thing that is no longer as it was."""

    path: str
    what: str
    place: Place | None = None
    before: Any = None
    now: Any = None

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"

    @property
    def once(self) -> bool:
        """Whether it is a setting made at first use (None to a plain value), no counter."""
        fresh = self.before is None or self.before is Missing
        word = isinstance(self.before, (str, bool)) and isinstance(self.now, (str, bool))
        return self.place is not None and isinstance(self.now, SIMPLE) and (fresh or word)

    @property
    def number(self) -> bool:
        """Whether a number became another one: a setting, or a counter."""
        numbers = (int, float)
        return self.place is not None and type(self.before) in numbers and type(self.now) in numbers

    def repeat(self) -> None:
        """Makes the same change again."""
        assert self.place is not None
        self.place.set(self.now)

    def undo(self) -> None:
        """Puts back what was there."""
        assert self.place is not None
        self.place.set(self.before)


class Missing:
    """Stands for an attribute, cell or item that is not there."""


class Seal:
    """Copies of the Python state behind `roots`. Holds references; one thread."""

    def __init__(self, roots: dict[str, Any], unguarded: tuple[str, ...] = ()) -> None:
        self.containers: list[Container] = []
        self.names: set[str] = {"training"}
        self.tensors: dict[int, str] = {}  # id(tensor) -> path
        self.storages: set[int] = set()  # the addresses of the storages behind them
        self._tensor_objects: list[torch.Tensor] = []
        self._seen: set[int] = set()
        self._types: set[type] = set()
        self._unguarded = unguarded
        waiting = collections.deque((path, root, path in unguarded) for path, root in roots.items())
        while waiting and len(self.containers) < _MOST_CONTAINERS:
            path, value, loose = waiting.popleft()
            loose = loose or isinstance(value, _UNGUARDED)
            for child_path, child in self._visit(path, value, loose):
                waiting.append((child_path, child, loose))

    # -- the walk -------------------------------------------------------------------------------
    def _visit(self, path: str, value: Any, loose: bool) -> list[tuple[str, Any]]:
        if isinstance(value, torch.Tensor):
            if id(value) not in self.tensors:
                self.tensors[id(value)] = path
                self._tensor_objects.append(value)
                if has_storage(value):
                    self.storages.add(storage_address(value))
            return []
        if isinstance(value, SIMPLE) or isinstance(value, _SKIPPED) or id(value) in self._seen:
            return []
        # A decorated step: met where it has the name of something that the code mentions (`step`).
        if type(value).__module__ == "outsize.step":
            return []
        self._seen.add(id(value))
        state = generator_state(value)
        if state is not None:
            self._keep(path, "generator", value, state, loose)
            return []
        if isinstance(value, (list, collections.deque)):
            self._keep(path, "list", value, list(value), loose)
            return _items(path, enumerate(value))
        if isinstance(value, (tuple, frozenset)):
            return _items(path, enumerate(value))
        if isinstance(value, dict):
            self._keep(path, "dict", value, dict(value), loose)
            return _items(path, value.items())
        if isinstance(value, set):
            self._keep(path, "set", value, set(value), loose)
            return []
        if isinstance(value, types.MethodType):
            return [(path, value.__func__), (f"{path}.__self__", value.__self__)]
        if isinstance(value, functools.partial):
            return [
                (f"{path}.func", value.func),
                (f"{path}.args", value.args),
                (f"{path}.keywords", value.keywords),
            ]
        if isinstance(value, types.FunctionType):
            return self._function(path, value, loose)
        position = iterator_position(value)
        if position is not None:
            self._keep(path, "iterator", value, position, loose)
            return []
        attributes = getattr(value, "__dict__", None)
        if not isinstance(attributes, dict):
            return []
        return self._attributes(path, value, attributes, loose)

    def _attributes(
        self, path: str, value: Any, attributes: dict[str, Any], loose: bool
    ) -> list[tuple[str, Any]]:
        module = isinstance(value, torch.nn.Module)
        kept = {
            name: item
            for name, item in attributes.items()
            if not (module and name in _HOOK_ATTRIBUTES)
        }
        self._keep(path, "attributes", value, kept, loose)
        self._class(type(value))
        result = []
        for name, item in kept.items():
            inner = name in ("_parameters", "_buffers", "_modules") and module
            if inner and name == "_modules":
                result += [(f"{path}.{child}", module_) for child, module_ in item.items()]
                self._seen.add(id(item))
                self._keep(path, "dict", item, dict(item), True)
            elif inner:
                self._seen.add(id(item))
                self._keep(path, "dict", item, dict(item), True)
                result += [(f"{path}.{child}", tensor) for child, tensor in item.items()]
            else:
                result.append((f"{path}.{name}", item))
        return result

    def _class(self, kind: type) -> None:
        """The names that a class's methods mention: attributes that the step may read."""
        if kind in self._types:
            return
        self._types.add(kind)
        for base in kind.__mro__:
            if base in (object, torch.nn.Module, torch.optim.Optimizer):
                continue
            for member in list(vars(base).values()):
                function = getattr(member, "__func__", getattr(member, "fget", member))
                if isinstance(function, types.FunctionType):
                    self.names.update(code_names(function.__code__))

    def _function(
        self, path: str, function: types.FunctionType, loose: bool
    ) -> list[tuple[str, Any]]:
        if not is_user_code(function.__code__) and path != "step":
            return []
        names = set(code_names(function.__code__))
        self.names.update(names)
        result: list[tuple[str, Any]] = []
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                content = cell.cell_contents
            except ValueError:
                continue
            self._keep(name, "cell", cell, content, loose)
            result.append((name, content))
        used = {n: function.__globals__[n] for n in sorted(names) if n in function.__globals__}
        if used:
            self._keep("", "globals", function.__globals__, used, loose)
        result += used.items()
        if function.__defaults__:
            result.append((f"{path}.defaults", function.__defaults__))
        if function.__kwdefaults__:
            result.append((f"{path}.defaults", function.__kwdefaults__))
        return result

    def _keep(self, path: str, kind: str, value: Any, copy: Any, loose: bool) -> None:
        self.containers.append(Container(path, kind, value, copy, not loose))

    # -- afterwards -----------------------------------------------------------------------------
    def changes(self) -> list[Change]:
        """What has changed since."""
        return [change for container in self.containers for change in _changes(container)]

    def restore(self) -> None:
        """Puts every container's content back."""
        for container in self.containers:
            if _changes(container):
                _restore(container)

    def forget(self) -> None:
        """Lets go of everything; places made before stay good."""
        self.containers = []
        self._tensor_objects.clear()
        self.tensors.clear()

    def tensor_places(self, wanted: Callable[[torch.Tensor], bool]) -> list[Place]:
        """Where closures and objects hold the tensors that `wanted` picks."""
        return [
            place
            for container in self.containers
            if container.guarded
            for place in _places(container)
            if isinstance(place.before(), torch.Tensor) and wanted(place.before())
        ]

    def links(self, places: list[Place]) -> list[Place]:
        """The places that lead to the containers of `places`: rebound, the places mean nothing."""
        relevant = {id(place.container.object) for place in places}
        result = []
        for container in reversed(self.containers):
            if not container.guarded:
                continue
            for place in _places(container):
                if id(place.before()) in relevant:
                    result.append(place)
                    relevant.add(id(container.object))
        return result[::-1]

    def places(self) -> list[Place]:
        """The simple values that the step's code may have read, in the order of the walk."""
        return [
            place
            for container in self.containers
            if container.guarded
            for place in _places(container)
            if self.guards(place) and isinstance(place.before(), SIMPLE)
        ]

    def guards(self, place: Place | None) -> bool:
        """Whether the capture holds only while this place keeps its value."""
        if place is None or not place.container.guarded:
            return False
        if place.container.kind in ("list", "cell"):
            return True
        return isinstance(place.key, str) and place.key in self.names


def _places(container: Container) -> list[Place]:
    if container.kind == "cell":
        return [Place(container.path, container, None)]
    if container.kind == "list" and len(container.copy) <= _LONGEST_LIST:
        return [Place(_join(container, i), container, i) for i in range(len(container.copy))]
    if container.kind in ("dict", "attributes", "globals"):
        return [Place(_join(container, key), container, key) for key in container.copy]
    return []


def _items(path: str, items: Iterable[tuple[Any, Any]]) -> list[tuple[str, Any]]:
    return [(f"{path}[{_key(k)}]", item) for k, item in items if not isinstance(item, SIMPLE)]


def _key(key: Any) -> str:
    return repr(key) if isinstance(key, SIMPLE) else type(key).__name__


def _join(container: Container, key: Any) -> str:
    if container.kind == "globals":
        return str(key)
    if container.kind == "attributes":
        return f"{container.path}.{key}"
    return f"{container.path}[{_key(key)}]"


def generator_state(value: Any) -> Any:
    """The state of a random generator object, comparable; None for anything else."""
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if type(value).__module__.startswith("numpy.random"):
        source = getattr(value, "bit_generator", value)
        if hasattr(source, "state"):
            return _NumpyState(copy.deepcopy(source.state))
        if hasattr(source, "get_state"):
            return _NumpyState(source.get_state())
    return None


class _NumpyState:
    """A NumPy generator's state; arrays inside, so it is compared by its text."""

    def __init__(self, state: Any) -> None:
        self.state = state
        self._text = repr(state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _NumpyState) and self._text == other._text

    __hash__ = None  # type: ignore[assignment]


def iterator_position(value: Any) -> Any:
    """Where an iterator stands, comparable; None if it is no iterator."""
    if isinstance(value, types.GeneratorType):
        return ("generator", value.gi_frame.f_lasti if value.gi_frame is not None else -1)
    if not hasattr(type(value), "__next__"):
        return None
    if hasattr(value, "__dict__"):
        return None  # walked as an object
    try:
        return ("iterator", repr(value.__reduce__()[1:]))
    except (TypeError, AttributeError):
        return ("iterator", repr(value))


def same_simple(before: Any, now: Any) -> bool:
    """Equal simple values; a NaN equals itself."""
    return isinstance(before, SIMPLE) and bool(before == now or (before != before and now != now))


def _same(before: Any, now: Any) -> bool:
    return before is now or (type(before) is type(now) and same_simple(before, now))


def _current(container: Container) -> Any:
    target, kind = container.object, container.kind
    if kind == "attributes":
        if isinstance(target, torch.nn.Module):
            return {n: v for n, v in vars(target).items() if n not in _HOOK_ATTRIBUTES}
        return vars(target)
    if kind == "cell":
        try:
            return target.cell_contents
        except ValueError:
            return Missing
    if kind == "globals":
        return {name: target.get(name, Missing) for name in container.copy}
    if kind == "generator":
        return generator_state(target)
    if kind == "iterator":
        return iterator_position(target)
    return target


def _changes(container: Container) -> list[Change]:
    """All that has changed in attributes and dicts; of other kinds the first."""
    now, before, kind, path = _current(container), container.copy, container.kind, container.path
    if kind in ("generator", "iterator"):
        what = "was drawn from" if kind == "generator" else "was advanced"
        return [] if now == before else [Change(path, what)]
    if kind == "cell":
        place = Place(path, container, None)
        return [] if _same(before, now) else [Change(path, "was assigned", place, before, now)]
    if kind == "set":
        return [] if now == before else [Change(path, "was changed")]
    if kind == "list":
        if len(now) != len(before):
            return [Change(path, f"has {len(now)} items, had {len(before)}")]
        for index, (old, new) in enumerate(zip(before, now)):
            if not _same(old, new):
                return [Change(_join(container, index), "was assigned")]
        return []
    found = []
    for key in [*before, *(key for key in now if key not in before)]:
        old, new = before.get(key, Missing), now.get(key, Missing)
        if not _same(old, new):
            what = "was deleted" if new is Missing else "was assigned"
            place = Place(_join(container, key), container, key)
            found.append(Change(place.path, what, place, old, new))
    return found


def _restore(container: Container) -> None:
    target, kind, before = container.object, container.kind, container.copy
    if kind == "list":
        target.clear()
        target.extend(before)
    elif kind == "set":
        target.clear()
        target.update(before)
    elif kind == "dict":
        target.clear()
        target.update(before)
    elif kind == "cell":
        target.cell_contents = before
    elif kind == "globals":
        target.update(before)
    elif kind == "attributes":
        attributes = vars(target)
        for name in [n for n in _current(container) if n not in before]:
            del attributes[name]
        attributes.update(before)
    elif kind == "generator":
        _restore_generator(target, before)


def _restore_generator(target: Any, state: Any) -> None:
    if isinstance(target, random.Random):
        target.setstate(state)
    elif isinstance(target, torch.Generator):
        target.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    elif hasattr(target, "bit_generator"):
        target.bit_generator.state = state.state
    elif hasattr(target, "set_state"):
        target.set_state(state.state)
