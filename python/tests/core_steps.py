"""Tiny steps written down by hand for the tests of `outsize_core`: each op runs eagerly, which gives the
numbers to compare with, and is put down as a graph at the same time.

    step = StepWriter()
    w = step.parameter("w", torch.randn(4, 4))
    y = step.call("aten.mm.default", step.input(x), w)
    graph, profile = step.graph(outputs=[y]), step.profile()
"""

from __future__ import annotations

import json
from typing import Any

import torch

Json = dict[str, Any]


class Scalar:
    """A number known when the step runs; `value` is what it was when the step was written down."""

    def __init__(self, index: int, value: float) -> None:
        self.index = index
        self.value = value


class StepWriter:
    def __init__(self, threads: int | None = None) -> None:
        self.storages: list[Json] = []
        self.values: list[Json] = []
        self.scalars: list[Json] = []
        self.guards: list[Json] = []
        self.ops: list[Json] = []
        self.costs: list[Json] = []
        self.threads = torch.get_num_threads() if threads is None else threads
        self._alive: list[torch.Tensor] = []  # so that no address is used twice
        self._storage_ids: dict[int, int] = {}

    # --- what is there at entry ----------------------------------------------------------------

    def parameter(self, name: str, tensor: torch.Tensor, role: str = "parameter") -> torch.Tensor:
        """A persistent storage; the returned copy is what eager changes."""
        copy = tensor.clone()
        self._add(
            copy, {"role": role, "entry": True, "exit": True, "persistent": True, "name": name}
        )
        return copy

    def input(self, tensor: torch.Tensor) -> torch.Tensor:
        copy = tensor.clone()
        self._add(copy, {"role": "input", "entry": True})
        return copy

    def number(self, name: str, value: float) -> Scalar:
        self.scalars.append({"kind": "input", "name": name, "present": value})
        return Scalar(len(self.scalars) - 1, value)

    def function(self, function: str, value: float, *args: Scalar | float) -> Scalar:
        encoded = [{"scalar": a.index} if isinstance(a, Scalar) else a for a in args]
        self.scalars.append({"kind": "op", "function": function, "args": encoded, "present": value})
        return Scalar(len(self.scalars) - 1, value)

    def guard(self, scalar: Scalar, outcome: bool | float) -> None:
        site = {"file": "train.py", "line": 12}
        self.guards.append({"scalar": scalar.index, "outcome": outcome, "site": site})

    # --- ops --------------------------------------------------------------------------------------

    def call(self, name: str, *args: Any, rng: bool = False, module: str = "") -> Any:
        """Runs the op and puts it down. `args` in schema order, keyword-only ones included."""
        _, base, overload = name.split(".")
        op = getattr(getattr(torch.ops.aten, base), overload)
        schema = op._schema.arguments
        plain, keyword = [], {}
        reads: list[int] = []
        mutates: list[int] = []
        for argument, given in zip(schema, args, strict=False):
            written = argument.alias_info is not None and argument.alias_info.is_write
            for tensor in tensors_in(given):
                (mutates if written else reads).append(self._storage_of(tensor))
            real = eager_of(given)
            if argument.kwarg_only:
                keyword[argument.name] = real
            else:
                plain.append(real)
        encoded_args = [self._encode(given) for given in args]
        with torch.no_grad():
            result = op(*plain, **keyword)
        if isinstance(result, (int, float)):
            self.scalars.append({"kind": "item", "present": result})
            scalar = Scalar(len(self.scalars) - 1, result)
            results: list[Any] = [{"scalar": scalar.index}]
            makes: list[int] = []
            returned: Any = scalar
        else:
            parts = list(result) if isinstance(result, tuple) else [result]
            known = len(self.storages)
            results = [self._encode(part) for part in parts]
            makes = list(range(known, len(self.storages)))
            returned = result
        reads = [s for s in dict.fromkeys(reads) if s not in mutates]
        self.ops.append(
            {
                "name": name,
                "args": encoded_args,
                "results": results,
                "reads": [self._whole(s) for s in reads],
                "makes": [self._whole(s) for s in makes],
                "mutates": [self._whole(s) for s in dict.fromkeys(mutates)],
                "uses_rng": rng,
                "host_sync": base == "_local_scalar_dense",
                "site": {"module": module, "file": "train.py", "line": len(self.ops) + 1},
            }
        )
        # Stated costs: outputs and nothing else. `measured` has the true ones.
        requests = [[self.storages[s]["bytes"], k, 0] for k, s in enumerate(makes)]
        self.costs.append({"ns": 1000, "requests": requests})
        return returned

    # --- the texts --------------------------------------------------------------------------------

    def storage_id(self, tensor: torch.Tensor) -> int:
        return self._storage_ids[tensor.untyped_storage().data_ptr()]

    def graph(self, outputs: list[torch.Tensor] | None = None) -> str:
        storages = [dict(s) for s in self.storages]
        for tensor in outputs or []:
            storage = storages[self.storage_id(tensor)]
            storage.update(role="output", exit=True)
        return json.dumps(
            {
                "format": "outsize-graph",
                "version": 1,
                "title": "test",
                "torch_version": "",
                "device_type": "cpu",
                "threads": self.threads,
                "storages": storages,
                "values": self.values,
                "scalars": self.scalars,
                "guards": self.guards,
                "ops": self.ops,
            }
        )

    def profile(self) -> str:
        return json.dumps(
            {
                "format": "outsize-profile",
                "version": 1,
                "how": "measured",
                "machine": "test",
                "torch_version": "",
                "threads": self.threads,
                "ops": self.costs,
            }
        )

    # --- inside -----------------------------------------------------------------------------------

    def _add(self, tensor: torch.Tensor, fields: Json) -> int:
        self._alive.append(tensor)
        self.storages.append({"bytes": tensor.untyped_storage().nbytes(), **fields})
        index = len(self.storages) - 1
        self._storage_ids[tensor.untyped_storage().data_ptr()] = index
        return index

    def _storage_of(self, tensor: torch.Tensor) -> int:
        known = self._storage_ids.get(tensor.untyped_storage().data_ptr())
        return self._add(tensor, {"role": "activation"}) if known is None else known

    def _whole(self, storage: int) -> list[int]:
        return [storage, 0, self.storages[storage]["bytes"]]

    def _encode(self, given: Any) -> Any:
        if isinstance(given, torch.Tensor):
            self.values.append(
                {
                    "storage": self._storage_of(given),
                    "dtype": str(given.dtype).removeprefix("torch."),
                    "sizes": list(given.size()),
                    "strides": list(given.stride()),
                    "offset": given.storage_offset(),
                }
            )
            return {"value": len(self.values) - 1}
        if isinstance(given, Scalar):
            return {"scalar": given.index}
        if isinstance(given, torch.dtype):
            return {"dtype": str(given).removeprefix("torch.")}
        if isinstance(given, (list, tuple)):
            return [self._encode(item) for item in given]
        return given


def tensors_in(given: Any) -> list[torch.Tensor]:
    if isinstance(given, torch.Tensor):
        return [given]
    if isinstance(given, (list, tuple)):
        return [tensor for item in given for tensor in tensors_in(item)]
    return []


def eager_of(given: Any) -> Any:
    if isinstance(given, Scalar):
        return given.value
    if isinstance(given, (list, tuple)):
        return [eager_of(item) for item in given]
    return given


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold the same bits (NaN equals itself, 0.0 not -0.0)."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    flat = [t.detach().contiguous().flatten().view(torch.uint8) for t in (a, b)]
    return torch.equal(flat[0], flat[1])


def view_bytes(raw: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """`raw`, a storage's bytes, seen as `like` is seen."""
    return raw.view(like.dtype).as_strided(like.size(), like.stride(), like.storage_offset())


def measured(step: StepWriter, outputs: list[torch.Tensor] | None = None) -> tuple[str, str]:
    """The step's graph and what its ops really ask for."""
    import outsize_core

    graph = step.graph(outputs)
    options = {"use_cache": False, "timed_runs": 2, "evict_bytes": 0}
    found = outsize_core.measure_profile(graph, {}, options)
    assert found["findings"] == [], found["findings"]
    return graph, found["profile"]


def machine_text(**changes: Any) -> str:
    """The unit machine with PyTorch's alignment."""
    import outsize_core

    machine = json.loads(outsize_core.machine("unit"))
    machine.update(alignment=64, disk_alignment=64, **changes)
    return json.dumps(machine)


class Run:
    """A planned step in a session of its own, with the user's tensors on its homes.

    `entries` has the content at entry of every persistent storage, by its name.
    """

    def __init__(
        self,
        graph: str,
        profile: str,
        plan: Json,
        entries: dict[str, torch.Tensor],
        device: int | None = None,
        disk_dir: str = "",
        session: Any = None,
        **load_options: Any,
    ) -> None:
        import outsize_core

        self.graph = json.loads(graph)
        self.plan = plan
        budgets = plan["budgets"]
        self.session = session or outsize_core.Session(
            device or budgets["device"], budgets["host"], budgets["disk"], disk_dir
        )
        text = json.dumps({key: value for key, value in plan.items() if key != "planned"})
        self.handle = self.session.load(graph, profile, text, load_options)
        self.tensors = {name: tensor.clone() for name, tensor in entries.items()}
        for name, place in self.homes("entry").items():
            self.session.adopt(self.tensors[name], *place)

    def homes(self, border: str) -> dict[str, tuple[str, int]]:
        places = {}
        for item in self.plan[border]:
            residency = self.plan["residencies"][item["residency"]]
            if item.get("home"):
                name = self.graph["storages"][residency["storage"]]["name"]
                places[name] = (residency["tier"], residency["address"])
        return places

    def step(self, inputs: dict[int, torch.Tensor] | None = None, **scalars: float) -> Json:
        result = self.session.step(self.handle, inputs or {}, scalars)
        for name, place in self.homes("exit").items():
            self.session.repoint(self.tensors[name], *place)
        return result


def make_plan(graph: str, profile: str, planner: str, device: int, **options: Any) -> Json:
    """The plan, with what the planner says of it beside it under "planned"."""
    import outsize_core

    options = {"host": 1 << 20, "disk": 0, "work": 2000, **options}
    planned = outsize_core.plan(
        graph, profile, machine_text(), {"planner": planner, "device": device, **options}
    )
    return {**json.loads(planned["plan"]), "planned": planned}
