"""What PyTorch and libraries must answer differently while a capture runs; all put back afterwards.

    with patched(on_read, on_text, on_seed, on_draw, on_data, on_scheduler, fake=True): step(batch)

Library code that asks "is this traced?" is answered no, so that it takes eager's path. What would read
tensor data or a number into Python without the recorder seeing it is handed to a callback that refuses.
"""

from __future__ import annotations

import builtins
import contextlib
import math
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import lr_scheduler
from torch.optim import optimizer as torch_optimizer
from torch.utils import _foreach_utils

from outsize.capture.scalars import SYMBOLIC, choose, node_of, symbolic
from outsize.errors import CaptureError

_READERS = ("numpy", "tolist", "__array__", "data_ptr", "__dlpack__")
_TEXTS = ("__repr__", "__str__", "__format__")


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """`owner.name` is `value` inside; what was there, or its absence, comes back."""
    missing = object()
    own = vars(owner).get(name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


@contextlib.contextmanager
def patched(
    on_read: Callable[[str, torch.Tensor], None],
    on_text: Callable[[Any], Any],
    on_seed: Callable[[str], None],
    on_draw: Callable[[str, str], None],
    on_data: Callable[[str], None],
    on_scheduler: Callable[[Any, tuple[Any, ...], dict[str, Any]], None] | None,
    fake: bool,
) -> Iterator[None]:
    """`on_scheduler` None leaves schedulers alone (the real flavour runs them)."""
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        enter(torch.autograd.set_multithreading_enabled(False))
        for name in _READERS:
            enter(replaced(torch.Tensor, name, _reader(name, on_read)))
        for kind in (
            torch.SymFloat,
            torch.SymInt,
            torch.SymBool,
            *([torch.Tensor] if fake else []),
        ):
            for name in _TEXTS:
                enter(replaced(kind, name, _text(kind, name, on_text)))
        enter(replaced(FakeTensor, "tolist", _reader("tolist", on_read)))
        enter(replaced(FakeTensor, "__repr__", _text(FakeTensor, "__repr__", on_text)))
        for name in ("min", "max"):
            enter(replaced(builtins, name, _chooser(getattr(builtins, name), name)))
        enter(replaced(math, "sqrt", _root(math.sqrt)))
        for name in ("tensor", "as_tensor"):
            enter(replaced(torch, name, _maker(getattr(torch, name), on_data)))
        for name in ("from_numpy", "frombuffer", "load"):
            enter(replaced(torch, name, _told(getattr(torch, name), on_data, name)))
        for module in (torch, torch.random):
            for name in ("set_rng_state", "manual_seed", "seed"):
                enter(replaced(module, name, _told(getattr(module, name), on_seed, name)))
        for library, owner in (("random", random), ("numpy.random", numpy.random)):
            for name, function in _drawing(owner):
                enter(replaced(owner, name, _told(function, on_draw, library, name)))
        if fake:
            for module in (torch_optimizer, _foreach_utils):
                types = module._foreach_supported_types
                types.append(FakeTensor)
                stack.callback(types.remove, FakeTensor)
            _answer_no(enter)
            enter(replaced(fake_tensor.log, "disabled", True))
        dynamo: Any = sys.modules.get("torch._dynamo.eval_frame")
        if hasattr(dynamo, "_callback_from_stance"):  # asked by each call of a compiled function
            stance = dynamo._callback_from_stance
            enter(replaced(dynamo, "_callback_from_stance", _compiled_refuser(stance)))
        if on_scheduler is not None:
            for scheduler in _with_subclasses(lr_scheduler.LRScheduler):
                if "step" in vars(scheduler):
                    enter(replaced(scheduler, "step", _scheduler(on_scheduler)))
        yield


def _answer_no(enter: Callable[[Any], Any]) -> None:
    """transformers asks of each tensor whether it is fake, under several modules' names."""
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith("transformers") or module is None:
            continue
        for name in ("is_tracing", "is_fake_tensor"):
            function = vars(module).get(name)
            if callable(function) and getattr(function, "__module__", "").startswith(
                "transformers"
            ):
                enter(replaced(module, name, _never))


def _compiled_refuser(original: Any) -> Any:
    def refuse(callback: Any) -> Any:
        if not callable(callback):  # what disables compilation asks too
            return original(callback)
        raise CaptureError(
            "the step calls something compiled by torch.compile: its kernels give other bits than the ops "
            "that a capture sees",
            way_out="leave torch.compile out (a compiled model has the plain one as ._orig_mod)",
        )

    return refuse


def _never(tensor: Any = None) -> bool:
    return False


def _reader(name: str, on_read: Callable[[str, torch.Tensor], None]) -> Any:
    original = getattr(torch.Tensor, name)

    def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        on_read(name, tensor)
        return original(tensor, *args, **kwargs)

    return read


def _text(kind: type, name: str, on_text: Callable[[Any], Any]) -> Any:
    original = getattr(kind, name)

    def text(value: Any, *args: Any, **kwargs: Any) -> str:
        known = on_text(value)  # refuses, or says what to write in its place
        if known is not None:
            return str(getattr(known, name)(*args))
        return str(original(value, *args, **kwargs))

    return text


def _chooser(original: Any, name: str) -> Any:
    def smallest_or_largest(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and any(isinstance(value, SYMBOLIC) for value in args):
            values = args if len(args) > 1 else list(args[0])
            chosen = choose(name, list(values))
            if chosen is not None:
                return chosen
        return original(*args, **kwargs)

    return smallest_or_largest


def _root(original: Any) -> Any:
    def sqrt(value: Any, /) -> Any:
        node = node_of(value)
        return original(value) if node is None else symbolic(node.table.op("sqrt", [node]))

    return sqrt


def _told(original: Any, tell: Callable[..., None], *words: str) -> Any:
    """Calls tell(*words) first."""

    def call(*args: Any, **kwargs: Any) -> Any:
        tell(*words)
        return original(*args, **kwargs)

    return call


def _maker(original: Any, on_data: Callable[[str], None]) -> Any:
    """`torch.tensor(number)` of a symbolic number: an op that takes it, not a constant."""

    def make(data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        if isinstance(data, numpy.ndarray):
            on_data("tensor of a NumPy array")
        node = node_of(data)
        if node is None or args:
            return original(data, *args, **kwargs)  # type: ignore[no-any-return]
        dtype = kwargs.pop("dtype", None) or _DTYPES[node.type]()
        requires_grad = kwargs.pop("requires_grad", False)
        made = torch.full((), data, dtype=dtype, **kwargs)
        return made.requires_grad_() if requires_grad else made

    return make


_DTYPES: dict[type, Callable[[], torch.dtype]] = {
    float: torch.get_default_dtype,
    int: lambda: torch.int64,
    bool: lambda: torch.bool,
}


def _drawing(module: Any) -> list[tuple[str, Any]]:
    """The functions of a module that are methods of its one hidden generator."""
    return [
        (name, function)
        for name, function in vars(module).items()
        if not name.startswith(("_", "get")) and getattr(function, "__self__", module) is not module
    ]


def _scheduler(on_scheduler: Callable[[Any, tuple[Any, ...], dict[str, Any]], None]) -> Any:
    def step(scheduler: Any, *args: Any, **kwargs: Any) -> None:
        on_scheduler(scheduler, args, kwargs)

    return step


def _with_subclasses(kind: type) -> list[type]:
    found = [kind]
    for child in kind.__subclasses__():
        found += [item for item in _with_subclasses(child) if item not in found]
    return found
