"""Finds what outlived a capture: fake tensors and symbolic numbers, and who holds them."""

from __future__ import annotations

import gc
import types
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from outsize.capture.scalars import SYMBOLIC, ScalarTable, node_of
from outsize.capture.storages import has_storage, storage_address


def storages_alive() -> set[int]:
    """The addresses of all storages that a Python tensor shows now."""
    result = set()
    for item in gc.get_objects():
        if issubclass(type(item), torch.Tensor) and has_storage(item):
            try:
                result.add(storage_address(item))
            except (RuntimeError, NotImplementedError):
                continue  # a subclass without storage of its own
    return result


def find(fake_mode: Any, scalars: ScalarTable) -> str:
    """The holder of one survivor, as text; "" if there is none."""
    alive = [
        item
        for item in gc.get_objects()
        if (issubclass(type(item), FakeTensor) and item.fake_mode is fake_mode)
        or (issubclass(type(item), SYMBOLIC) and _ours(item, scalars))
    ]
    for item in alive:
        holder = _holder(item, alive)
        if holder:
            return holder
    return "somebody" if alive else ""


def _ours(item: Any, scalars: ScalarTable) -> bool:
    node = node_of(item)
    return node is not None and node.table is scalars


def _holder(item: Any, alive: list[Any]) -> str:
    for referrer in gc.get_referrers(item):
        if referrer is alive or isinstance(referrer, types.FrameType):
            continue
        for owner in gc.get_referrers(referrer):
            if owner is alive or isinstance(owner, types.FrameType):
                continue
            if isinstance(referrer, dict) and vars_of(owner) is referrer:
                names = [k for k, v in referrer.items() if v is item]
                return f"{type(owner).__name__}.{names[0] if names else '?'}"
        return f"a {type(referrer).__name__}"
    return ""


def vars_of(owner: Any) -> Any:
    return getattr(owner, "__dict__", None)
