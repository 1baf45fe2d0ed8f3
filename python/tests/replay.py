"""Runs a captured graph from its JSON with PyTorch's own ops, one after another: the tests' oracle.

    Replay(captured).step(args, kwargs)  ->  what the step returns

It shares nothing with the recorder but the graph: arguments are decoded from JSON, values are views on
storages, scalars are computed in order. What the step leaves behind (gradients, new optimizer state) is
put where PyTorch would put it.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch.utils import _pytree as pytree

from outsize.capture import Capture
from outsize.capture.arguments import flatten
from outsize.capture.encode import call, decode
from outsize.capture.scalars import FUNCTIONS
from outsize.capture.storages import same_strides


class Replay:
    """One captured step, run from JSON."""

    def __init__(self, captured: Capture, poison: bool = False) -> None:
        self.captured = captured
        self.graph = json.loads(json.dumps(captured.graph))
        self.poison = poison

    def step(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        flat = [leaf for _, leaf in flatten(args, kwargs or {})]
        memory: dict[int, torch.UntypedStorage] = {}
        scalars: dict[int, Any] = {}
        for item in self.captured.inputs:
            source = flat[item.leaf]
            whole = torch.empty(0, dtype=torch.uint8).set_(source.untyped_storage())
            memory[item.storage] = whole[item.begin(flat) :].clone().untyped_storage()
        for storage, tensor in self.captured.entry_tensors().items():
            memory[storage] = tensor.untyped_storage()
        for number in self.captured.scalar_inputs:
            scalars[number.scalar] = number.read(flat)
        with torch.no_grad():
            self._run(memory, scalars)
        return self._leave(flat, memory, scalars)

    def tensor(self, value: int, memory: dict[int, torch.UntypedStorage]) -> torch.Tensor:
        v = self.graph["values"][value]
        dtype = getattr(torch, v["dtype"])
        if 0 in v["sizes"]:
            return torch.empty_strided(v["sizes"], v["strides"], dtype=dtype)
        tensor = torch.empty(0, dtype=dtype)
        tensor.set_(memory[v["storage"]], v["offset"], v["sizes"], v["strides"])
        if v.get("conj"):
            tensor = torch._conj(tensor)
        return torch._neg_view(tensor) if v.get("neg") else tensor

    def scalar(self, index: int, scalars: dict[int, Any]) -> Any:
        if index not in scalars:
            node = self.graph["scalars"][index]
            assert node["kind"] == "op"
            args = [decode(a, None, lambda i: self.scalar(i, scalars)) for a in node["args"]]
            scalars[index] = FUNCTIONS[node["function"]](*args)
        return scalars[index]

    def _run(self, memory: dict[int, torch.UntypedStorage], scalars: dict[int, Any]) -> None:
        last: dict[int, int] = {}
        for index, op in enumerate(self.graph["ops"]):
            for kind in ("reads", "makes", "mutates"):
                for storage, _, _ in op[kind]:
                    last[storage] = index
        for index, op in enumerate(self.graph["ops"]):
            args = [
                decode(a, lambda v: self.tensor(v, memory), lambda i: self.scalar(i, scalars))
                for a in op["args"]
            ]
            before = {s for s in memory}
            outputs = call(op["name"], args)
            self._bind(op, outputs, memory, scalars)
            assert {s for s in memory} - before <= {s for s, _, _ in op["makes"]}
            for kind in ("reads", "makes", "mutates"):
                for storage, _, _ in op[kind]:
                    item = self.graph["storages"][storage]
                    if last[storage] == index and not item.get("exit") and not item.get("entry"):
                        del memory[storage]  # nobody may touch it again
                        last[storage] = -1

    def _bind(self, op: Any, outputs: Any, memory: Any, scalars: dict[int, Any]) -> None:
        for result, output in zip(_flat(op["results"]), _flat(outputs)):
            if isinstance(result, dict) and "scalar" in result:
                scalars[result["scalar"]] = output
            elif isinstance(result, dict):
                value = self.graph["values"][result["value"]]
                assert list(output.size()) == value["sizes"], op
                assert str(output.dtype) == "torch." + value["dtype"], op
                if not output.numel():
                    continue
                assert same_strides(value["sizes"], output.stride(), value["strides"]), op
                if value["storage"] not in memory:
                    memory[value["storage"]] = output.untyped_storage()
                assert memory[value["storage"]].data_ptr() == output.untyped_storage().data_ptr()

    def _leave(self, flat: list[Any], memory: Any, scalars: dict[int, Any]) -> Any:
        captured = self.captured
        for item in captured.inputs:
            if self.graph["storages"][item.storage].get("exit"):
                size = self.graph["storages"][item.storage]["bytes"]
                whole = torch.empty(0, dtype=torch.uint8)
                whole.set_(flat[item.leaf].untyped_storage())
                new = torch.empty(0, dtype=torch.uint8).set_(memory[item.storage])
                begin = item.begin(flat)
                whole[begin : begin + size] = new[:size]
        for name in captured.dropped_grads:
            captured.parameters[name].grad = None
        for name, value in captured.grads.items():
            captured.parameters[name].grad = self.tensor(value, memory)
        for state in captured.new_state:
            made = state.object if state.value is None else self.tensor(state.value, memory)
            captured.optimizers[state.optimizer].state[state.owner][state.path] = made
        for replay in captured.replays:
            replay.run()
        leaves = []
        for output in captured.outputs:
            if output.kind == "value":
                leaves.append(self.tensor(output.id, memory).clone())
            elif output.kind == "scalar":
                leaves.append(self.scalar(output.id, scalars))
            elif output.kind == "argument":
                leaves.append(flat[output.id])
            else:
                leaves.append(output.object)
        return pytree.tree_unflatten(leaves, captured.output_spec)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _flat(item)]
    return [value]
