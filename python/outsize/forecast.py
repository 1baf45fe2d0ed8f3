"""What a plan promises and what a step did: the two records a user compares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .graph_words import module_of


@dataclass(frozen=True)
class Forecast:
    """What the simulator says of a plan, before any step has run.

    Times in seconds, sizes in bytes. `moved` has the bytes a step copies: ``out`` and ``in`` between
    device and host, ``write`` and ``read`` to and from disk. `swapped` has bytes copied by role of
    the storage, `recomputed` counts reruns by op and the module it is in
    (``"aten.mul.Tensor in resid_dropout"``). `runtime_bytes` is what kernel libraries were seen to keep
    for themselves, beside PyTorch's allocator, when the ops were measured. `timeline` is [(ns, bytes held on the device)].
    With rollback, `rollback_bytes` of what the step writes over are kept, and count in `host_bytes` or
    `disk_bytes`; copying them takes `rollback_s`, which `step_s` has.
    """

    planner: str
    step_s: float
    compute_s: float
    bound_s: float
    peak_bytes: int
    host_bytes: int
    disk_bytes: int
    floor_bytes: int
    unplanned_peak_bytes: int
    moved: dict[str, int]
    swapped: dict[str, int]
    recomputed: dict[str, int]
    runtime_bytes: int
    planning_s: float
    timeline: list[tuple[int, int]] = field(repr=False)
    rollback_bytes: int = 0
    rollback_s: float = 0.0

    @property
    def gap(self) -> float:
        """Predicted time over the lower bound: 1.0 is as good as any plan can be."""
        return self.step_s / self.bound_s if self.bound_s > 0 else 1.0

    @property
    def recomputed_ops(self) -> int:
        """How many ops are run a second time."""
        return sum(self.recomputed.values())


@dataclass(frozen=True)
class StepRecord:
    """What one planned step did, measured.

    `peak_bytes` is one past the highest byte of the arena that the allocator's hook served, a copy
    touched, or a home or input held. `moved`, `swapped` (bytes by the storage's role) and `recomputed`
    (by op and module) are counted as each copy and rerun ends. `live_peak_bytes` is the most that was
    wanted at once: when, as it ran; how much, by the plan's sizes.
    """

    step_s: float
    peak_bytes: int
    live_peak_bytes: int
    moved: dict[str, int]
    swapped: dict[str, int]
    recomputed: dict[str, int]
    forecast: Forecast
    times: list[tuple[int, int]] = field(repr=False)
    _plan: dict[str, Any] = field(repr=False)

    @property
    def recomputed_ops(self) -> int:
        """How many ops ran a second time."""
        return sum(self.recomputed.values())

    @property
    def timeline(self) -> list[tuple[int, int]]:
        """[(ns since the step began, bytes held on the device)], from when each instruction really ran."""
        return device_timeline(self._plan, self.times, round(self.step_s * 1e9))


def moved_bytes(counts: dict[str, Any]) -> dict[str, int]:
    """The core's `moved_*` counts by direction."""
    return {way: int(counts[f"moved_{way}"]) for way in ("out", "in", "write", "read")}


def device_timeline(
    plan: dict[str, Any], times: list[tuple[int, int]], step_ns: int
) -> list[tuple[int, int]]:
    """Bytes that live residencies and workspaces hold on the device, at each moment that changes them.

    A residency lives from the begin of the first instruction that touches it (at entry: from 0) to
    the end of the last one (at exit: to the step's end).
    """
    lives: dict[int, tuple[int, int]] = {item["residency"]: (0, 0) for item in plan["entry"]}
    changes: dict[int, int] = {}

    def hold(begin: int, end: int, size: int) -> None:
        changes[begin] = changes.get(begin, 0) + size
        changes[end] = changes.get(end, 0) - size

    for instruction, (begin, end) in zip(plan["instructions"], times, strict=True):
        touched = instruction.get("operands") or [
            instruction[side] for side in ("from", "to") if side in instruction
        ]
        for residency in touched:
            first, last = lives.get(residency, (begin, end))
            lives[residency] = (min(first, begin), max(last, end))
        low, high = instruction.get("workspace", (0, 0))
        if high > low:
            hold(begin, end, high - low)
    for item in plan["exit"]:
        first, _ = lives.get(item["residency"], (0, 0))
        lives[item["residency"]] = (first, step_ns)
    for residency, (first, last) in lives.items():
        place = plan["residencies"][residency]
        if place["tier"] == "device":
            hold(first, last, place["bytes"][1] - place["bytes"][0])
    held = 0
    timeline = []
    for moment in sorted(changes):
        held += changes[moment]
        timeline.append((moment, held))
    return timeline


def swapped_and_recomputed(
    graph: dict[str, Any], plan: dict[str, Any]
) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes that `plan` copies, by the storage's role, and its reruns, by op and module."""
    swapped: dict[str, int] = {}
    recomputed: dict[str, int] = {}
    for instruction in plan["instructions"]:
        if instruction["kind"] == "copy":
            storage = plan["residencies"][instruction["from"]]["storage"]
            role = graph["storages"][storage]["role"]
            begin, end = instruction["bytes"]
            swapped[role] = swapped.get(role, 0) + end - begin
        elif instruction["kind"] == "rerun":
            name = op_in_module(graph["ops"][instruction["op"]])
            recomputed[name] = recomputed.get(name, 0) + 1
    return swapped, recomputed


def rerun_names(graph: dict[str, Any], plan: dict[str, Any]) -> dict[int, str]:
    """The ops that `plan` runs again, by name and module."""
    again = {i["op"] for i in plan["instructions"] if i["kind"] == "rerun"}
    return {op: op_in_module(graph["ops"][op]) for op in again}


def op_in_module(op: dict[str, Any]) -> str:
    """
    >>> op_in_module({"name": "aten.mul.Tensor", "site": {"module": "h.0.drop"}})
    'aten.mul.Tensor in drop'
    """
    module = module_of(op).rpartition(".")[2]
    return f"{op['name']} in {module}" if module else str(op["name"])
