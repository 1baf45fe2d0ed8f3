"""The memory that the steps of a model share, and the user's tensors that live in it between steps.

A home is a tier and an address. A tensor's home is wherever its storage lies now: nothing is remembered
here that could go stale. Tensors are moved by copying their bytes and pointing their storage elsewhere,
so the user's objects, their views and `state_dict` entries all follow.
"""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch.multiprocessing.reductions import StorageWeakRef

import outsize_core

from .core import translated
from .errors import PoisonedError

Tier = Literal["device", "host", "disk"]
Place = tuple[Tier, int, int]  # tier, address, bytes


class Ranges:
    """The bytes of each tier that a plan touches."""

    def __init__(self, plan: dict[str, Any]) -> None:
        spans: dict[str, list[tuple[int, int]]] = {}
        for residency in plan["residencies"]:
            begin, end = residency["bytes"]
            address = residency["address"]
            spans.setdefault(residency["tier"], []).append((address, address + end - begin))
        for instruction in plan["instructions"]:
            if "workspace" in instruction:
                begin, end = instruction["workspace"]
                spans.setdefault("device", []).append((begin, end))
        self._merged = {tier: _merged(found) for tier, found in spans.items()}

    def touch(self, place: Place) -> bool:
        tier, address, size = place
        merged = self._merged.get(tier, [])
        index = bisect.bisect_right(merged, address, key=lambda span: span[1])
        return index < len(merged) and merged[index][0] < address + size


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted and disjoint, touching ones joined, empty ones left out."""
    result: list[tuple[int, int]] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((begin, end))
    return result


@dataclass(frozen=True)
class Mixed:
    """A tensor that a failed step left in between two steps, until somebody writes or replaces it."""

    name: str
    current: Callable[[], torch.Tensor | None]
    tensor: weakref.ref[torch.Tensor]
    version: int

    def restored(self) -> bool:
        now = self.current()
        return now is None or now is not self.tensor() or now._version != self.version


class Homes:
    """One session of the core, and what of the user's lies in it. One thread at a time."""

    def __init__(self, device_bytes: int, host_bytes: int, disk_bytes: int, disk_dir: str) -> None:
        with translated():
            self.session = outsize_core.Session(device_bytes, host_bytes, disk_bytes, disk_dir)
        self.device_bytes = device_bytes
        self.host_bytes = host_bytes
        self.disk_bytes = disk_bytes
        self.disk_folder = disk_dir
        # Each says which tensors count for it; what lies here and counts for nobody is in the way.
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lying: dict[tuple[Tier, int], StorageWeakRef] = {}
        self._mixed: list[Mixed] = []
        self._failure = ""

    # -- where tensors lie ----------------------------------------------------------------------
    def place_of(self, tensor: torch.Tensor) -> Place | None:
        """Where the tensor's storage lies, if it lies in this session."""
        found = self.session.home_of(tensor)
        return None if found is None else (found[0], found[1], found[2])

    def settle(self, wanted: list[tuple[torch.Tensor, Tier, int]], used: Ranges) -> int:
        """Moves each tensor to its tier and address, unless it lies there. Returns how many were moved.

        What else lies in the `used` ranges moves to ordinary memory: a tensor that the user kept though
        the step has dropped it, or one of another step of the model.
        """
        home_of = self.session.home_of
        movers: list[tuple[torch.Tensor, Tier, int]] = []
        own: set[Place] = set()
        for mover in wanted:
            found = home_of(mover[0])
            if found is not None:
                own.add(found)
            if found is None or found[0] != mover[1] or found[1] != mover[2]:
                movers.append(mover)
        occupied = self.session.adopted()
        if len(occupied) > len(own):
            for place in occupied:
                if place not in own and used.touch(place):
                    self._evict(place)
        with translated():
            self.session.move(movers)
        for tensor, tier, address in movers:
            self._note(tensor, tier, address)
        return len(movers)

    def at(self, place: Place) -> torch.Tensor:
        """A tensor (of bytes) on a home that nothing lies on yet; it counts as lying there."""
        with translated():
            held = self.session.at(*place)
            self.session.repoint(held, place[0], place[1])
        self._note(held, place[0], place[1])
        return held

    def release(self, tensor: torch.Tensor) -> None:
        """Back to ordinary memory, if it lies here."""
        with translated():
            self.session.release(tensor)

    def occupied(self) -> list[Place]:
        """All places that tensors of the user lie on now."""
        return self.session.adopted()

    def clear_strays(self) -> None:
        """Moves tensors that count for no user of these homes to ordinary memory: their places are free."""
        known = {
            tensor.untyped_storage()._cdata for user in self.users for tensor in user.own_tensors()
        }
        for place in self.session.adopted():
            storage = self._storage_at(place)
            if storage is not None and storage._cdata not in known:
                self._evict(place)

    def _evict(self, place: Place) -> None:
        storage = self._storage_at(place)
        if storage is not None:
            tensor = torch.empty(0, dtype=torch.uint8)
            tensor.set_(cast(Any, storage))
            self.release(tensor)

    def _storage_at(self, place: Place) -> Any:
        reference = self._lying.get(place[:2])
        if reference is None or reference.expired():  # type: ignore[no-untyped-call]
            return None
        return cast(Any, torch.UntypedStorage)._new_with_weak_ptr(reference.cdata)

    def _note(self, tensor: torch.Tensor, tier: Tier, address: int) -> None:
        reference = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        self._lying[tier, address] = reference

    # -- after a failed step --------------------------------------------------------------------
    def poison(
        self, mixed: list[tuple[str, Callable[[], torch.Tensor | None]]], failure: str
    ) -> None:
        """Notes what a failed step left mixed: steps are refused until all of it is written anew.

        failure: why it failed.
        """
        self._failure = failure
        for name, current in mixed:
            tensor = current()
            if tensor is not None:
                mark = Mixed(name, current, weakref.ref(tensor), tensor._version)
                self._mixed.append(mark)

    def check_restored(self) -> None:
        """Raises PoisonedError while something mixed has not been restored."""
        if not self.session.poisoned:
            return
        left = [mixed.name for mixed in self._mixed if not mixed.restored()]
        if left:
            raise PoisonedError(
                f"an earlier step failed ({self._failure}) and left a mix of two steps in "
                f"{', '.join(left)}: "
                "load_state_dict() what a checkpoint has of the model and the optimizer, "
                "or write it anew and call the step's restored(); close() gives all tensors, mixed as "
                "they are, ordinary memory, and rollback=True undoes steps that fail",
                mixed=left,
            )
        self.restored()

    def restored(self) -> None:
        """All that was mixed has been put back."""
        self._mixed.clear()
        self.session.mark_restored()


def typed(storage: torch.UntypedStorage, value: dict[str, Any], begin: int = 0) -> torch.Tensor:
    """The tensor that a graph value describes, on `storage` from byte `begin`."""
    dtype = getattr(torch, value["dtype"])
    tensor = torch.empty(0, dtype=dtype)
    offset = begin // dtype.itemsize + value["offset"]
    tensor.set_(cast(Any, storage), offset, tuple(value["sizes"]), tuple(value["strides"]))
    if value.get("conj"):
        tensor = torch._conj(tensor)
    if value.get("neg"):
        tensor = torch._neg_view(tensor)
    return tensor
