"""Flattens a step's arguments to leaves with names.

    flatten((batch,), {"beta": 0.1})  ->  [("0.input_ids", tensor), ("beta", 0.1)]

Dicts, lists, tuples, dataclasses and mapping-like batches (transformers' BatchEncoding) are opened.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import torch


def flatten(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """All leaves, in order; an argument itself has a name without a dot."""
    result: list[tuple[str, Any]] = []
    for index, argument in enumerate(args):
        _flatten(str(index), argument, result, frozenset())
    for name, argument in kwargs.items():
        _flatten(name, argument, result, frozenset())
    return result


def _flatten(path: str, value: Any, result: list[tuple[str, Any]], inside: frozenset[int]) -> None:
    items = None if id(value) in inside else _items(value)
    if items is None:
        result.append((path, value))
        return
    for key, item in items:
        _flatten(f"{path}.{key}", item, result, inside | {id(value)})


def _items(value: Any) -> list[tuple[Any, Any]] | None:
    if isinstance(value, (dict, collections.UserDict)):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict) and not isinstance(value, (torch.Tensor, type)):
        if any(isinstance(item, torch.Tensor) for item in attributes.values()):
            if not isinstance(value, torch.nn.Module):
                return list(attributes.items())
    return None
