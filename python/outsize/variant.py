"""One capture of a step with its plan: binds graph storages to the user's tensors and runs the plan.

Between two calls every persistent tensor lies on its home; a variant that finds one elsewhere (another
plan's choice, `p.data = t`, a loaded checkpoint) brings it to its own home first, by a copy.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.utils import _pytree as pytree

from .budgets import format_bytes
from .call import Call
from .capture.entries import Names
from .capture.result import Capture, NewState
from .core import translated
from .errors import InfeasibleError, StepError
from .forecast import Forecast, StepRecord, moved_bytes
from .homes import Homes, Place, Ranges, Tier, typed
from .interrupts import Interrupts
from .planning import Border, Budgets, Planner, Prepared, Reserved

if TYPE_CHECKING:
    from outsize_core import StepResult

    from .step import Step


class Variant:
    """See the file's head. Made by `make`; one thread."""

    def __init__(
        self, captured: Capture, prepared: Prepared, homes: Homes, handle: int, step: Step
    ) -> None:
        self.capture = captured
        self.forecast: Forecast = prepared.forecast
        self.circumstances: dict[str, str] = {}
        self._homes = homes
        self._handle = handle
        self._step = step
        # Interrupts after which a step stops: one that can't be undone is finished at the first.
        self._most_interrupts = 1 if prepared.rollback_tier else 2
        graph = captured.graph
        self._values: list[dict[str, Any]] = graph["values"]
        self._storages: list[dict[str, Any]] = graph["storages"]
        self._plan: dict[str, Any] = json.loads(prepared.plan)
        self._used = Ranges(self._plan)
        self._rerun_names = prepared.rerun_names
        self._entry_homes = _homes_in(self._plan, "entry")
        self._exit_homes = _homes_in(self._plan, "exit")
        self._written = _written(graph)
        self._dropped = _dropped_first(graph)
        # Entries by the name to look them up by, and those dropped before the first op.
        self._entry_names = {
            storage: name
            for storage in self._entry_homes
            if (name := self._name(storage)) not in self._dropped
        }

    @staticmethod
    def make(
        captured: Capture,
        call: Call,
        planner: Planner,
        homes_for: Callable[[Budgets], Homes],
        budgets: Callable[[int], Budgets],
        options: dict[str, Any],
        step: Step,
    ) -> Variant:
        """Plans the capture around the homes that its tensors have, loads the plan and settles the rest."""
        chosen: list[Budgets] = []

        def choose(peak_bytes: int) -> Budgets:
            chosen.append(budgets(peak_bytes))
            return chosen[-1]

        shared = step.shared_homes()
        border, reserved = _border_of(captured, shared)
        inputs = input_bytes(captured, call.flat)
        try:
            prepared = planner.prepare(captured.graph, inputs, choose, border, reserved)
        except InfeasibleError:
            if not border and not reserved:
                raise
            # Homes that other plans chose leave no room: choose anew, and move tensors at each change.
            prepared = planner.prepare(captured.graph, inputs, choose, [], [])
            step.say(_homes_apart(step.__name__, border, prepared))
        homes = homes_for(chosen[-1])
        with translated():
            handle = homes.session.load(
                prepared.graph,
                prepared.profile,
                prepared.plan,
                {
                    "clock_mode": bool(options["clock"]),
                    "record_times": True,
                    "rollback": prepared.rollback_tier,
                    "links_of": planner.links_of(),
                },
            )
        return Variant(captured, prepared, homes, handle, step)

    def unload(self) -> None:
        """Forgets the plan; homes stay."""
        self._homes.session.unload(self._handle)

    # -- one step -------------------------------------------------------------------------------
    def run(self, call: Call) -> tuple[Any, StepRecord]:
        """Runs the plan on these arguments; the same signature and guards as at capture."""
        with Interrupts(self._most_interrupts) as interrupts:
            return self._run(call, interrupts)

    def _run(self, call: Call, interrupts: Interrupts) -> tuple[Any, StepRecord]:
        flat = call.flat
        tensors = call.tensors
        entries = {
            storage: tensors[name] if name in tensors else self.capture.entries[storage]
            for storage, name in self._entry_names.items()
        }
        parameters = dict(call.names.parameters)
        del tensors, call.tensors  # a gradient dropped here is to be gone
        for name in self._dropped:
            if name.startswith("grad:"):
                parameters[name.removeprefix("grad:")].grad = None
        self._homes.settle(
            [(tensor, *self._entry_homes[s][:2]) for s, tensor in entries.items()], self._used
        )
        inputs = input_bytes(self.capture, flat)
        scalars = {s.name: s.read(flat) for s in self.capture.scalar_inputs}
        try:
            with translated():
                done = self._homes.session.step(self._handle, inputs, scalars, interrupts)
        except StepError as error:
            failure = self._failure(error)
            if interrupts.raised is not None:
                raise interrupts.raised from failure
            raise failure from None
        changed = [t for storage, t in entries.items() if storage in self._written]
        self._bind(call.names, entries, done, flat)
        result = pytree.tree_unflatten(
            [self._output(output, done, entries, flat) for output in self.capture.outputs],
            self.capture.output_spec,
        )
        self._after(changed)
        return result, self._record(done)

    def _bind(
        self, names: Names, entries: dict[int, torch.Tensor], done: StepResult, flat: list[Any]
    ) -> None:
        """Gives the user what the step left: written batches, gradients, new optimizer state."""
        for given in self.capture.inputs:
            written = done["outputs"].get(given.storage)
            if written is not None and self._storages[given.storage].get("exit"):
                target = _input_bytes(
                    self.capture, given.storage, given.begin(flat), flat[given.leaf]
                )
                with torch.no_grad():
                    target.copy_(written)
        parameters = dict(names.parameters)
        for name in self.capture.dropped_grads:
            parameters[name].grad = None
        for name, value in self.capture.grads.items():
            parameters[name].grad = None if value is None else self._tensor(value, entries)
        for state in self.capture.new_state:
            self._bind_state(state, names, entries)

    def _bind_state(self, state: NewState, names: Names, entries: dict[int, torch.Tensor]) -> None:
        optimizer = names.optimizers[state.optimizer]
        value = state.object if state.value is None else self._tensor(state.value, entries)
        holder: Any = optimizer.state[state.owner]
        *outer, last = state.path.split(".")
        for key in outer:
            holder = holder.setdefault(key, {}) if isinstance(holder, dict) else holder[int(key)]
        if isinstance(holder, list):
            holder.append(value)
        else:
            holder[last] = value

    def _tensor(self, value_id: int, entries: dict[int, torch.Tensor]) -> torch.Tensor:
        """A tensor on the home of a persistent value; all on one storage share it, as in eager."""
        value = self._values[value_id]
        storage = value["storage"]
        if storage not in entries:
            entries[storage] = self._homes.at(self._exit_homes[storage])
        return typed(entries[storage].untyped_storage(), value)

    def _output(
        self, output: Any, done: StepResult, entries: dict[int, torch.Tensor], flat: list[Any]
    ) -> Any:
        if output.kind == "scalar":
            return done["scalars"][output.id]
        if output.kind == "argument":
            return flat[output.id]
        if output.kind == "object":
            return output.object
        value = self._values[output.id]
        storage = value["storage"]
        if storage in self._exit_homes:
            return self._tensor(output.id, entries)
        for given in self.capture.inputs:
            if given.storage == storage:
                return typed(flat[given.leaf].untyped_storage(), value, given.begin(flat))
        return typed(done["outputs"][storage].untyped_storage(), value)

    def _failure(self, error: StepError) -> StepError:
        """Poisons what is mixed. Gradients that the step drops at its start are gone, as in eager, where
        zero_grad() has run before whatever fails after it: they are neither mixed nor to be restored.
        """
        mixed = [n for n in error.mixed if n.removesuffix(":before") not in self._dropped]
        text = str(error)
        cause = text.partition(" (of two steps mixed")[0]
        if error.mixed and not mixed:
            self._homes.restored()
            text = f"{cause} (the step was undone)"
        self._homes.poison([(name, self._finder(name)) for name in mixed], cause)
        if self._dropped:
            text += "; the .grad that the step drops at its start are gone"
        undone = error.undone or bool(error.mixed and not mixed)
        return StepError(text, undone=undone, mixed=mixed)

    def _name(self, storage: int) -> str:
        return str(self._storages[storage]["name"]).removesuffix(":before")

    def _finder(self, name: str) -> Callable[[], torch.Tensor | None]:
        """Looks a tensor of the step up by its storage's name, whenever it is called."""
        name = name.removesuffix(":before")
        step = self._step
        constant = next((t for s, t in self.capture.entries.items() if self._name(s) == name), None)

        def find() -> torch.Tensor | None:
            return step.named_tensors().get(name, constant if name.startswith("constant") else None)

        return find

    def _after(self, changed: list[torch.Tensor]) -> None:
        """What eager leaves beside numbers: versions, the optimizers' mark, the schedulers' steps."""
        if changed:
            torch.autograd.graph.increment_version(changed)
        for optimizer in self.capture.stepped:
            optimizer._opt_called = True  # type: ignore[attr-defined]
        for replay in self.capture.replays:
            replay.run()

    def _record(self, done: StepResult) -> StepRecord:
        report = done["report"]
        return StepRecord(
            step_s=(report["step_ns"] + report["copy_in_ns"] + report["copy_out_ns"]) / 1e9,
            peak_bytes=report["arena_highest"],
            live_peak_bytes=report["live_peak"]["device"],
            moved=moved_bytes(cast("dict[str, int]", report)),
            swapped=report["swapped"],
            recomputed=dict(Counter(self._rerun_names[op] for op in report["rerun_ops"])),
            forecast=self.forecast,
            times=report["times"],
            _plan=self._plan,
        )


def _homes_apart(name: str, border: Border, prepared: Prepared) -> str:
    """What it means that a plan has other homes than the model's tensors lie on now."""
    homes = _homes_in(json.loads(prepared.plan), "entry")
    moving = [s for s, tier, address in border if s in homes and homes[s][:2] != (tier, address)]
    size = sum(homes[storage][2] for storage in moving)
    return (
        f"{name}: no plan fits around the homes that the model's other plans chose; this one has homes of "
        f"its own: {len(moving)} tensors ({format_bytes(size)}) move whenever steps change between them, "
        "and a NumPy array of one has to be taken anew after that"
    )


def _homes_in(plan: dict[str, Any], border: str) -> dict[int, Place]:
    """Storage id -> (tier, address, bytes) of the homes at a plan's entry or exit."""
    homes: dict[int, Place] = {}
    for item in plan[border]:
        if item.get("home"):
            residency = plan["residencies"][item["residency"]]
            begin, end = residency["bytes"]
            tier = cast(Tier, residency["tier"])
            homes[residency["storage"]] = (tier, residency["address"], end - begin)
    return homes


def _written(graph: dict[str, Any]) -> set[int]:
    """Storages that some op changes in place."""
    return {access[0] for op in graph["ops"] for access in op.get("mutates", [])}


def _dropped_first(graph: dict[str, Any]) -> set[str]:
    """Names of persistent storages that no op touches and that are gone afterwards: a gradient that the
    step drops before anything else. Their bytes are free from the start."""
    touched = {
        access[0]
        for op in graph["ops"]
        for kind in ("reads", "makes", "mutates")
        for access in op.get(kind, [])
    }
    return {
        s["name"].removesuffix(":before")
        for i, s in enumerate(graph["storages"])
        if s.get("persistent") and not s.get("exit") and i not in touched
    }


def input_bytes(captured: Capture, flat: list[Any]) -> dict[int, torch.Tensor]:
    """The bytes of each input's storage, from the flattened arguments."""
    return {
        i.storage: _input_bytes(captured, i.storage, i.begin(flat), flat[i.leaf])
        for i in captured.inputs
    }


def _input_bytes(captured: Capture, storage: int, begin: int, leaf: torch.Tensor) -> torch.Tensor:
    """The bytes of an argument that the graph calls `storage`, as a uint8 tensor on the same memory."""
    size = captured.graph["storages"][storage]["bytes"]
    held = torch.empty(0, dtype=torch.uint8)
    held.set_(cast(Any, leaf.untyped_storage()), begin, (size,), (1,))
    return held


def _border_of(captured: Capture, homes: Homes | None) -> tuple[Border, Reserved]:
    """The homes that the capture's tensors have already, and the places that others hold."""
    if homes is None:
        return [], []
    homes.clear_strays()
    dropped = _dropped_first(captured.graph)
    storages = captured.graph["storages"]
    border: list[tuple[int, str, int]] = []
    taken: set[Place] = set()
    for storage, tensor in captured.entry_tensors().items():
        place = homes.place_of(tensor)
        if place is None or not storages[storage].get("persistent"):
            continue
        taken.add(place)
        if storages[storage].get("name", "").removesuffix(":before") not in dropped:
            border.append((storage, place[0], place[1]))
    reserved = [
        (tier, address, address + size)
        for tier, address, size in homes.occupied()
        if (tier, address, size) not in taken
    ]
    return border, reserved
