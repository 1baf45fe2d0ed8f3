"""The storages and values of a capture: which bytes each tensor is a view of.

    p = model.weight                 # entry storage 0, "param:weight"
    table.value_of(p), table.value_of(p.t())   # two values, one storage
    table.fake_of(p)                 # a fake tensor of p's geometry that no byte stands behind

A storage is one `StorageImpl`. A real storage and the fake one that stands in for it are one record.
The table keeps the storage objects alive, so that an address names one storage during a capture; it
keeps no tensor that the step makes, because PyTorch decides by reference counts what it may reuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef

from outsize.errors import CaptureError


@dataclass
class StorageRecord:
    """One entry of the graph's `storages`, and what it stands for here."""

    bytes: int
    role: str = "activation"
    entry: bool = False
    exit: bool = False
    persistent: bool = False
    name: str = ""
    begin: int = 0  # the byte of the real storage where this one starts (batch views)
    fixed: bool = False  # `bytes` is the real size; else it grows with the views that are made
    tensor: torch.Tensor | None = None  # entries: a real tensor on it
    wrote: bool = False  # some op of the step mutated it
    made: bool = False  # an op of the step makes it
    site: str = ""  # made by: for messages


ValueKey = tuple[int, str, tuple[int, ...], tuple[int, ...], int, bool, bool]


def storage_address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The bytes of its storage that a tensor can reach: {first, one past last}."""
    item, first = tensor.element_size(), int(tensor.storage_offset())
    if tensor.numel() == 0:
        return first * item, first * item
    last = first + sum((size - 1) * step for size, step in zip(tensor.size(), tensor.stride()))
    return first * item, (last + 1) * item


def _geometry(tensor: torch.Tensor) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    return dtype_name(tensor.dtype), tuple(tensor.size()), tuple(tensor.stride())


def same_strides(sizes: Sequence[int], a: Sequence[int], b: Sequence[int]) -> bool:
    """Equal where they matter: the stride of a size of 1 is never taken, and kernels differ on it."""
    return all(size == 1 or x == y for size, x, y in zip(sizes, a, b))


INPUT_ALIGNMENT = 16  # of the byte that an input's storage is taken from


def input_begin(leaf: torch.Tensor, before: int) -> int:
    """Where the storage of a batch starts, if arguments reach `before` bytes before this leaf's first."""
    first = extent(leaf)[0] - before
    return first - first % INPUT_ALIGNMENT


def has_storage(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_quantized


class StorageTable:
    """Storages and values by identity. One thread; lives as long as one capture."""

    def __init__(self, fake_mode: FakeTensorMode | None) -> None:
        self.fake_mode = fake_mode
        self.records: list[StorageRecord] = []
        self.values: list[ValueKey] = []
        self._empty: int | None = None
        self._by_address: dict[int, int] = {}
        self._value_ids: dict[ValueKey, int] = {}
        self._fakes: dict[tuple[Any, ...], FakeTensor] = {}
        self._fake_storages: dict[int, torch.UntypedStorage] = {}
        self._alive: list[torch.UntypedStorage] = []
        self._made: list[Any] = []

    # -- storages -------------------------------------------------------------------------------
    def find(self, tensor: torch.Tensor) -> int | None:
        return self._by_address.get(storage_address(tensor))

    def add(self, tensor: torch.Tensor, record: StorageRecord) -> int:
        storage = tensor.untyped_storage()
        index = len(self.records)
        self.records.append(record)
        self._by_address[storage._cdata] = index
        self._alive.append(storage)
        return index

    def add_entry(
        self,
        tensor: torch.Tensor,
        role: str,
        name: str,
        *,
        persistent: bool,
        begin: int = 0,
        end: int | None = None,
    ) -> int:
        """Gives a real tensor's storage its record; the first name of a shared storage stays."""
        known = self.find(tensor)
        if known is not None:
            return known
        size = tensor.untyped_storage().nbytes() if end is None else end
        return self.add(
            tensor,
            StorageRecord(
                bytes=size - begin,
                role=role,
                entry=True,
                persistent=persistent,
                exit=persistent,
                name=name,
                begin=begin,
                fixed=True,
                tensor=tensor,
            ),
        )

    def add_made(self, tensor: torch.Tensor, site: str) -> int:
        return self.add(tensor, StorageRecord(bytes=extent(tensor)[1], made=True, site=site))

    # -- values ---------------------------------------------------------------------------------
    def value_of(self, tensor: torch.Tensor) -> int:
        storage = self.find(tensor)
        assert storage is not None, "a value's storage has a record"
        record = self.records[storage]
        if tensor.numel() == 0:
            return self._value((self._no_bytes(), *_geometry(tensor), 0, False, False))
        first, last = extent(tensor)
        if record.fixed:
            if first < record.begin or last > record.begin + record.bytes:
                raise CaptureError(
                    f"the step reaches bytes [{first}, {last}) of the storage behind "
                    f"{record.name}, of which its arguments show only "
                    f"[{record.begin}, {record.begin + record.bytes})",
                    way_out="pass the larger tensor as an argument, or a copy",
                )
        elif last > record.bytes:
            record.bytes = last
        offset = int(tensor.storage_offset()) - record.begin // tensor.element_size()
        return self._value((storage, *_geometry(tensor), offset, tensor.is_conj(), tensor.is_neg()))

    def _no_bytes(self) -> int:
        """One storage of no bytes for all tensors without elements: they need none, and keep none."""
        if self._empty is None:
            self._empty = len(self.records)
            self.records.append(StorageRecord(bytes=0))
        return self._empty

    def _value(self, key: ValueKey) -> int:
        found = self._value_ids.get(key)
        if found is None:
            found = self._value_ids[key] = len(self.values)
            self.values.append(key)
        return found

    def bytes_of(self, value: int) -> tuple[int, int, int]:
        """[storage, begin, end) that a value reaches."""
        storage, dtype, sizes, strides, offset, _, _ = self.values[value]
        item = getattr(torch, dtype).itemsize
        if 0 in sizes:
            return storage, offset * item, offset * item
        last = offset + sum((size - 1) * step for size, step in zip(sizes, strides))
        return storage, offset * item, (last + 1) * item

    # -- fakes ----------------------------------------------------------------------------------
    def fake_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """A fake tensor with a real one's geometry; aliases of one storage stay aliases."""
        assert self.fake_mode is not None
        key = (
            storage_address(tensor),
            tensor.dtype,
            tuple(tensor.size()),
            tuple(tensor.stride()),
            tensor.storage_offset(),
            tensor.is_conj(),
            tensor.is_neg(),
        )
        fake = self._fakes.get(key)
        if fake is not None:
            return fake
        record = self.find(tensor)
        assert record is not None
        address = key[0]
        storage = self._fake_storages.get(address)
        if storage is None:
            size = tensor.untyped_storage().nbytes()
            storage = torch.UntypedStorage(size, device="meta")  # type: ignore[no-untyped-call]
            self._fake_storages[address] = storage
            self._by_address[storage._cdata] = record
            self._alive.append(storage)
        meta = torch.empty(0, dtype=tensor.dtype, device="meta")
        meta.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
        if tensor.is_conj():
            meta = torch._conj(meta) if not meta.is_conj() else meta
        if tensor.is_neg():
            meta = torch._neg_view(meta)
        fake = FakeTensor(self.fake_mode, meta, tensor.device)
        self._fakes[key] = fake
        return fake

    def release(self) -> None:
        """Drops all that keeps storages alive; addresses mean nothing from here on."""
        self._fakes.clear()
        self._fake_storages.clear()
        self._by_address.clear()
        weak: Any = StorageWeakRef
        self._made = [weak(storage) for storage in self._alive if storage.device.type == "meta"]
        self._alive.clear()

    def alive(self) -> bool:
        """After `release`: whether somebody still holds a fake storage."""
        return any(not storage.expired() for storage in self._made)

    # -- results --------------------------------------------------------------------------------
    def json_values(self) -> list[dict[str, Any]]:
        result = []
        for storage, dtype, sizes, strides, offset, conj, neg in self.values:
            value: dict[str, Any] = {
                "storage": storage,
                "dtype": dtype,
                "sizes": list(sizes),
                "strides": list(strides),
                "offset": offset,
            }
            if conj:
                value["conj"] = True
            if neg:
                value["neg"] = True
            result.append(value)
        return result

    def json_storages(self) -> list[dict[str, Any]]:
        result = []
        for record in self.records:
            storage: dict[str, Any] = {"bytes": record.bytes, "role": record.role}
            for flag in ("entry", "exit", "persistent"):
                if getattr(record, flag):
                    storage[flag] = True
            if record.name:
                storage["name"] = record.name
            result.append(storage)
        return result
