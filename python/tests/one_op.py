"""Graphs of one op, made by running it on real tensors, and graphs of a few ops run by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch

Graph = dict[str, Any]


class Recorder:
    """A graph of one op, made by running it on real tensors."""

    def __init__(self) -> None:
        self.graph: Graph = {
            "format": "outsize-graph", "version": 1, "title": "one op",
            "torch_version": torch.__version__, "device_type": "cpu", "threads": 0,
            "storages": [], "values": [], "ops": [],
        }  # fmt: skip
        self._storages: dict[int, int] = {}
        self._kept: list[torch.Tensor] = []

    def value(self, tensor: torch.Tensor, entry: bool) -> dict[str, int]:
        self._kept.append(tensor)
        at = tensor.untyped_storage().data_ptr()
        if at not in self._storages:
            self._storages[at] = len(self.graph["storages"])
            size = tensor.untyped_storage().nbytes()
            self.graph["storages"].append({"bytes": size, "role": "activation", "entry": entry})
        self.graph["values"].append(
            {
                "storage": self._storages[at],
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "sizes": list(tensor.shape),
                "strides": list(tensor.stride()),
                "offset": tensor.storage_offset(),
            }
        )
        return {"value": len(self.graph["values"]) - 1}

    def argument(self, argument: Any, entry: bool) -> Any:
        if isinstance(argument, torch.Tensor):
            return self.value(argument, entry)
        if isinstance(argument, (list, tuple)):
            return [self.argument(item, entry) for item in argument]
        if isinstance(argument, torch.dtype):
            return {"dtype": str(argument).removeprefix("torch.")}
        return argument

    def bytes_of(self, argument: Any) -> list[list[int]]:
        if isinstance(argument, list):
            return [a for item in argument for a in self.bytes_of(item)]
        if not isinstance(argument, dict) or "value" not in argument:
            return []
        storage = self.graph["values"][argument["value"]]["storage"]
        return [[storage, 0, self.graph["storages"][storage]["bytes"]]]


def called(op: Any, args: Sequence[Any]) -> Any:
    """What the op gives; `args` in the order of its schema."""
    schema = op._schema.arguments
    return op(
        *(item for a, item in zip(schema, args) if not a.kwarg_only),
        **{a.name: item for a, item in zip(schema, args) if a.kwarg_only},
    )


def one_op(name: str, args: Sequence[Any], mutated: Sequence[int] = ()) -> str:
    """The graph of one call. `mutated`: indices of the arguments that it changes in place."""
    packet, overload = name.split(".")
    op = getattr(getattr(torch.ops.aten, packet), overload)
    recorder = Recorder()
    given = [recorder.argument(argument, entry=True) for argument in args]
    with torch.no_grad():
        made = called(op, args)
    reads, mutates = [], []
    for index, argument in enumerate(given):
        for access in recorder.bytes_of(argument):
            (mutates if index in mutated else reads).append(access)
    reads = [access for i, access in enumerate(reads) if access not in reads[:i] + mutates]
    results: list[Any] = []
    if made is not None:
        many = list(made) if isinstance(made, tuple) else [made]
        in_place = isinstance(made, torch.Tensor) and made is args[0]
        results = (
            [given[0]] if in_place else [recorder.argument(result, entry=False) for result in many]
        )
    held = {access[0] for access in reads + mutates}
    makes = [access for access in recorder.bytes_of(results) if access[0] not in held]
    recorder.graph["ops"].append(
        {"name": f"aten.{name}", "args": given, "results": results,
         "reads": reads, "makes": makes, "mutates": mutates}
    )  # fmt: skip
    return json.dumps(recorder.graph)


def bytes_in(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of the tensor's storage."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def run_by_hand(graph: Graph, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Each storage's bytes after the graph's ops, called one by one. `operands`: of the first storages, in order."""
    held = [torch.full((s["bytes"],), 0xA5, dtype=torch.uint8) for s in graph["storages"]]
    for storage, operand in zip(held, operands):
        storage.copy_(bytes_in(operand))

    def tensor(value: int) -> torch.Tensor:
        what = graph["values"][value]
        empty = torch.empty(0, dtype=getattr(torch, what["dtype"]))
        place = held[what["storage"]].untyped_storage()
        return empty.set_(place, what["offset"], what["sizes"], what["strides"])

    def argument(given: Any) -> Any:
        if isinstance(given, dict) and "value" in given:
            return tensor(given["value"])
        if isinstance(given, dict) and "dtype" in given:
            return getattr(torch, given["dtype"])
        return [argument(item) for item in given] if isinstance(given, list) else given

    for op in graph["ops"]:
        _, packet, overload = op["name"].split(".")
        call = getattr(getattr(torch.ops.aten, packet), overload)
        given = [argument(item) for item in op["args"]]
        made = called(call, given)
        for result, had in zip(op["results"], made if isinstance(made, tuple) else [made]):
            if isinstance(result, dict):
                tensor(result["value"]).copy_(had)
    return held
