"""Computes single numbers of a captured step ahead of it, from small real tensors and the batch.

    shadow.number(op, value)   # what `value` holds just before `op`, or None

It runs the few ops that the number depends on, on copies, and only where they start from the batch,
from constants, from small buffers or small optimizer state (step counters): never from parameters,
gradients or random draws. The same slice answers the guard before each later call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from outsize.capture.encode import call, decode
from outsize.capture.recorder import OpRecord
from outsize.capture.scalars import Number
from outsize.capture.storages import StorageTable, same_strides

# The most bytes of an entry that a guard may look at, by role (bytes).
_READABLE = {
    "input": 64 << 20,
    "constant": 64 << 20,
    "buffer": 1 << 20,
    "optimizer_state": 4096,
}
_MOST_OPS = 400


class Shadow:
    """Slices of one capture's op list. One thread."""

    def __init__(
        self,
        storages: StorageTable,
        ops: Callable[[], list[OpRecord]],
        scalar: Callable[[int], Number | None],
    ) -> None:
        self._storages = storages
        self._ops = ops
        self._scalar = scalar
        self._writers: dict[int, list[int]] = {}
        self._scanned = 0

    def _scan(self) -> None:
        ops = self._ops()
        for index in range(self._scanned, len(ops)):
            op = ops[index]
            for storage in [*op.makes, *(storage for storage, _, _ in op.mutates)]:
                self._writers.setdefault(storage, []).append(index)
        self._scanned = len(ops)

    def slice(self, op: int, value: int) -> tuple[list[int], list[int]] | None:
        """The ops, ascending, and the entry storages that `value` before `op` depends on."""
        self._scan()
        ops, records = self._ops(), self._storages.records
        needed: set[int] = set()
        entries: set[int] = set()
        waiting = [(self._storages.values[value][0], op)]
        while waiting:
            storage, before = waiting.pop()
            record = records[storage]
            if record.entry:
                if record.bytes > _READABLE.get(record.role, -1):
                    return None
                entries.add(storage)
            for index in self._writers.get(storage, ()):
                if index >= before or index in needed:
                    continue
                writer = ops[index]
                if writer.uses_rng or writer.collective or writer.host_sync:
                    return None
                needed.add(index)
                if len(needed) > _MOST_OPS:
                    return None
                touched = {s for s, _, _ in [*writer.reads, *writer.mutates]} - {storage}
                waiting.extend((s, index) for s in touched)
        return sorted(needed), sorted(entries)

    def number(self, op: int, value: int) -> Number | None:
        """The number that a one-element `value` holds just before `op`; None where not to be had."""
        found = self.slice(op, value)
        if found is None:
            return None
        return self.run(found[0], value, lambda storage: self._storages.records[storage].tensor)

    def run(
        self,
        slice_ops: list[int],
        value: int,
        entry: Callable[[int], torch.Tensor | None],
        scalar: Callable[[int], Number | None] | None = None,
        begin: Callable[[int], int] | None = None,
    ) -> Number | None:
        ops, scalar = self._ops(), scalar or self._scalar
        written = {s for index in slice_ops for s, _, _ in ops[index].mutates}
        known: dict[int, torch.UntypedStorage] = {}
        unknown_scalar = False

        def storage_of(index: int) -> torch.UntypedStorage:
            if index not in known:
                record = self._storages.records[index]
                tensor = entry(index)
                assert tensor is not None, "a slice starts from entries"
                bytes_ = torch.empty(0, dtype=torch.uint8, device=tensor.device)
                size = record.bytes
                first = record.begin if begin is None else begin(index)
                bytes_.set_(tensor.untyped_storage(), first, (size,), (1,))
                if index in written:
                    bytes_ = bytes_.clone()
                known[index] = bytes_.untyped_storage()
                if index not in written and first:
                    known[index] = bytes_.clone().untyped_storage()
            return known[index]

        def tensor_of(index: int) -> torch.Tensor:
            return view(self._storages.values[index], storage_of)

        def scalar_of(index: int) -> Any:
            nonlocal unknown_scalar
            number = scalar(index)
            unknown_scalar |= number is None
            return 0 if number is None else number

        with _disable_current_modes(), torch.no_grad():
            for index in slice_ops:
                record = ops[index]
                arguments = [decode(a, tensor_of, scalar_of) for a in record.args]
                if unknown_scalar:
                    return None
                outputs = call(record.name, arguments)
                bind_results(record.results, outputs, self._storages.values, known)
            result = tensor_of(value).item()
        return result if isinstance(result, (bool, int, float)) else None


def view(key: Any, storage_of: Callable[[int], torch.UntypedStorage]) -> torch.Tensor:
    """A tensor over a storage, by a value's geometry."""
    storage, dtype, sizes, strides, offset, conj, neg = key
    if 0 in sizes:
        return torch.empty_strided(sizes, strides, dtype=getattr(torch, dtype))
    memory = storage_of(storage)
    tensor = torch.empty(0, dtype=getattr(torch, dtype), device=memory.device)
    tensor.set_(memory, offset, sizes, strides)
    if conj:
        tensor = torch._conj(tensor)
    return torch._neg_view(tensor) if neg else tensor


def bind_results(
    results: list[Any], outputs: Any, values: list[Any], known: dict[int, torch.UntypedStorage]
) -> None:
    """Puts the storages that an op made under the ids that the graph gives them."""
    for result, tensor in zip(_flat(results), _flat(outputs)):
        if isinstance(result, dict) and "value" in result:
            storage, _, sizes, strides, offset, _, _ = values[result["value"]]
            if storage not in known and 0 not in sizes:
                same = same_strides(sizes, strides, tensor.stride())
                assert same and tensor.size() == sizes and tensor.storage_offset() == offset, (
                    f"an op made {tuple(tensor.size())} strides {tensor.stride()}, "
                    f"captured {sizes} strides {strides}"
                )
                known[storage] = tensor.untyped_storage()


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _flat(item)]
    return [value]
