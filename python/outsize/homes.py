"""The memory that the steps of a model share, and the user's tensors that live in it between steps.

A home is a tier and an address. A tensor's home is wherever its storage lies now: nothing is remembered
here that could go stale. Tensors are moved by copying their bytes and pointing their storage elsewhere,
so the user's objects, their views and `state_dict` entries all follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

import outsize_core

from .core import translated

Place = tuple[str, int, int]  # tier, address, bytes


class Homes:
    """One session of the core, and what of the user's lies in it. One thread at a time."""

    def __init__(self, device_bytes: int, host_bytes: int, disk_bytes: int, disk_dir: str) -> None:
        with translated():
            self.session = outsize_core.Session(device_bytes, host_bytes, disk_bytes, disk_dir)
        self.device_bytes = device_bytes
        self.host_bytes = host_bytes

    def place_of(self, tensor: torch.Tensor) -> Place | None:
        """Where the tensor's storage lies, if it lies in this session."""
        found = self.session.home_of(tensor)
        return None if found is None else (found[0], found[1], found[2])

    def settle(self, tensors: Iterable[tuple[torch.Tensor, str, int]]) -> int:
        """Moves each tensor to its tier and address, unless it lies there. Returns how many were moved."""
        moved = 0
        for tensor, tier, address in tensors:
            found = self.session.home_of(tensor)
            if found is None or found[0] != tier or found[1] != address:
                with translated():
                    self.session.adopt(tensor, tier, address)
                moved += 1
        return moved

    def view(self, place: Place, value: dict[str, Any]) -> torch.Tensor:
        """A tensor of a graph value's geometry on the bytes of a home."""
        with translated():
            held = self.session.at(*place)
        return typed(held.untyped_storage(), value)

    def occupied(self) -> list[Place]:
        """All places that tensors of the user lie on now."""
        return [(tier, address, size) for tier, address, size in self.session.adopted()]


def typed(storage: torch.UntypedStorage, value: dict[str, Any], begin: int = 0) -> torch.Tensor:
    """The tensor that a graph value describes, on `storage` from byte `begin`."""
    dtype = getattr(torch, value["dtype"])
    tensor = torch.empty(0, dtype=dtype)
    offset = begin // dtype.itemsize + value["offset"]
    tensor.set_(storage, offset, tuple(value["sizes"]), tuple(value["strides"]))  # type: ignore[call-overload]
    if value.get("conj"):
        tensor = torch._conj(tensor)
    if value.get("neg"):
        tensor = torch._neg_view(tensor)
    return tensor
