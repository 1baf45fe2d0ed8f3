"""Arguments of ops as JSON (`docs/formats/graph.md`) and back.

encode(2.0, ...)            -> 2.0          decode({"value": 3}, ...) -> the tensor
encode(torch.float32, ...)  -> {"dtype": "float32"}
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from outsize.capture.scalars import node_of
from outsize.errors import CaptureError


def encode(argument: Any, kind: str, value_of: Callable[[torch.Tensor], int]) -> Any:
    """One argument as JSON; `kind` is the schema's type as text, e.g. "float" or "Tensor[]"."""
    node = node_of(argument)
    if node is not None:
        return {"scalar": node.id} if node.id is not None else number(node.literal, kind)
    if argument is None or isinstance(argument, str):
        return argument
    if isinstance(argument, torch.Tensor):
        return {"value": value_of(argument)}
    if isinstance(argument, (bool, int, float)):
        return number(argument, kind)
    if isinstance(argument, torch.dtype):
        return {"dtype": str(argument).removeprefix("torch.")}
    if isinstance(argument, torch.device):
        return {"device": str(argument)}
    if isinstance(argument, torch.layout):
        return {"layout": str(argument).removeprefix("torch.")}
    if isinstance(argument, torch.memory_format):
        return {"memory_format": str(argument).removeprefix("torch.")}
    if isinstance(argument, (list, tuple)):
        element = kind.removeprefix("Optional[").removeprefix("List[").rstrip("]")
        return [encode(item, element, value_of) for item in argument]
    if isinstance(argument, torch.Generator):
        if argument is torch.default_generator:
            return None
        raise CaptureError(
            "the step draws from a generator object of its own (generator=...)",
            way_out="use PyTorch's default generator, or draw before the step and pass the tensor",
        )
    raise CaptureError(f"an argument of type {type(argument).__name__} cannot be written down")


# What schemas write as numbers where a call leaves the argument out: randperm's dtype is int64.
_DEFAULTS = {("ScalarType", 4): torch.int64, ("MemoryFormat", 0): torch.contiguous_format}


def default_of(argument: Any) -> Any:
    """What an argument of a schema is where a call leaves it out."""
    default = argument.default_value
    if type(default) is not int:
        return default
    kind = str(argument.real_type).removeprefix("Optional[").rstrip("]")
    return _DEFAULTS.get((kind, default), default)


def number(value: Any, kind: str) -> Any:
    if isinstance(value, bool) and "float" not in kind:
        return value
    if "float" in kind or isinstance(value, float):
        value = float(value)
        if math.isnan(value):
            return {"float": "nan"}
        if math.isinf(value):
            return {"float": "inf" if value > 0 else "-inf"}
    return value


def decode(
    argument: Any, tensor_of: Callable[[int], torch.Tensor], scalar_of: Callable[[int], Any]
) -> Any:
    """The Python argument behind a JSON one."""
    if isinstance(argument, list):
        return [decode(item, tensor_of, scalar_of) for item in argument]
    if not isinstance(argument, dict):
        return argument
    ((kind, text),) = argument.items()
    if kind == "value":
        return tensor_of(text)
    if kind == "scalar":
        return scalar_of(text)
    if kind == "float":
        return float(text)
    if kind == "device":
        return torch.device(text)
    return getattr(torch, text)  # dtype, layout, memory_format


def operator_of(name: str) -> Any:
    """The callable behind "aten.addmm.default"."""
    namespace, packet, overload = name.split(".", 2)
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def call(name: str, arguments: list[Any]) -> Any:
    """Calls an op with all its arguments in schema order."""
    function = operator_of(name)
    positional: list[Any] = []
    keyword: dict[str, Any] = {}
    for argument, value in zip(function._schema.arguments, arguments):
        if argument.kwarg_only:
            keyword[argument.name] = value
        else:
            positional.append(value)
    return function(*positional, **keyword)
