"""From a captured graph to a plan that can be loaded: profile it, plan it, simulate it; each kept on disk.

planner = Planner(machine=None, planner="outsize", cache=True, log=print)
prepared = planner.prepare(captured.graph, inputs, budgets, border, reserved)
prepared.plan, prepared.profile, prepared.forecast
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

import outsize_core

from . import cache
from .budgets import format_bytes
from .core import translated
from .errors import CaptureError, InfeasibleError
from .forecast import Forecast, moved_bytes, rerun_names, swapped_and_recomputed
from .splitting import split_for
from .surroundings import cpu_name, say_if_planned_elsewhere

# (storage id, tier, address): where a persistent storage lies between steps.
Border = Sequence[tuple[int, str, int]]
# (tier, begin, end): ranges of addresses that other storages hold throughout the step.
Reserved = Sequence[tuple[str, int, int]]


# A plan of the whole step that is slower than this many times its ops makes splits worth a look.
WORTH_SPLITTING = 1.15


# Where the bytes that a step writes over are kept for undoing it; "" where they are not.
RollbackTier = Literal["", "host", "disk"]


# What becomes of the ops that are large beside the budget.
Form = Literal["fastest", "whole", "split"]


@dataclass(frozen=True)
class Budgets:
    """Bytes that each tier may hold at any moment."""

    device: int
    host: int
    disk: int
    host_given: bool  # by the user; otherwise it is what is free


@dataclass(frozen=True)
class Prepared:
    """A plan with what it was made from, as the texts that the core reads, and what it promises."""

    graph: str
    profile: str
    plan: str
    forecast: Forecast
    rerun_names: dict[int, str]  # of the ops that the plan runs again, by their index in `graph`
    rollback_tier: RollbackTier


class Planner:
    """Profiles graphs and plans them on one machine. One thread."""

    def __init__(
        self,
        *,
        machine: str | None,
        link: str | None,
        disk_folder: str | None,
        planner: str,
        seconds: float | None,
        work: int | None,
        seed: int,
        use_cache: bool,
        rollback: bool,
        log: Callable[[str], None],
    ) -> None:
        self._planner = planner
        self._rollback_tier: RollbackTier = (
            "" if not rollback else "host" if disk_folder is None else "disk"
        )
        self._seconds = seconds
        self._work = work
        self._seed = seed
        self._use_cache = use_cache
        self._log = log
        self._machine_name = machine
        self._link = link
        self._disk_folder = disk_folder
        self._machines: dict[int, str] = {}  # by thread count

    def machine(self) -> str:
        """The machine's JSON text: the one asked for, or this one, measured once and kept; with slower links
        where those are asked for."""
        threads = torch.get_num_threads()
        if threads not in self._machines:
            with translated():
                machine = (
                    self._this_machine()
                    if self._machine_name is None
                    else outsize_core.machine(self._machine_name)
                )
                if self._link is not None:
                    machine = outsize_core.machine_with_links(machine, self._link)
                self._machines[threads] = machine
        return self._machines[threads]

    def links_of(self) -> str:
        """The machine over whose links copies go, as JSON text; "" where they go as fast as they can."""
        return "" if self._link is None else self.machine()

    def _this_machine(self) -> str:
        threads = str(torch.get_num_threads())
        drive = "" if self._disk_folder is None else str(os.stat(self._disk_folder).st_dev)
        key = cache.digest_of(
            "machine", torch.__version__, threads, cpu_name(), drive, _core_build()
        )
        known = cache.load("machine", key, self._log) if self._use_cache else None
        if known is None:
            self._log("measuring this machine's copies (once, a few seconds)")
            options = {} if self._disk_folder is None else {"disk_dir": self._disk_folder}
            known = {"machine": outsize_core.measure_machine(options)}
            if self._use_cache:
                cache.store("machine", key, known, self._log)
        return str(known["machine"])

    def profile(self, graph: dict[str, Any], inputs: Mapping[int, torch.Tensor]) -> tuple[str, str]:
        """Measures each distinct op. Returns the graph (storage sizes as the ops ask for them) and profile."""
        with translated():
            measured = outsize_core.measure_profile(
                json.dumps(graph), dict(inputs), {"use_cache": self._use_cache}
            )
        for note in measured["notes"]:
            self._log(note)
        wrong = [f["text"] for f in measured["findings"] if f["kind"] != "storage bytes"]
        if wrong:
            raise CaptureError(
                "an op does otherwise than its schema says: " + "; ".join(wrong[:3]),
                way_out="report it: the table of schemas that lie lacks this op",
            )
        for storage, size in measured["storage_bytes"].items():
            _resize(graph, storage, size)
        return json.dumps(graph), str(measured["profile"])

    def prepare(
        self,
        graph: dict[str, Any],
        inputs: Mapping[int, torch.Tensor],
        budgets: Callable[[int], Budgets],
        border: Border,
        reserved: Reserved,
    ) -> Prepared:
        """Plans `graph`; `budgets` is called with the unplanned peak in bytes.

        Raises InfeasibleError with the floor and what sets it where no plan fits.
        """
        started = time.monotonic()
        if self._use_cache:
            say_if_planned_elsewhere(graph, self._log)
        return self.plan(self.profile(graph, inputs), inputs, budgets, border, reserved, started)

    def plan(
        self,
        profiled: tuple[str, str],
        inputs: Mapping[int, torch.Tensor],
        budgets: Callable[[int], Budgets],
        border: Border,
        reserved: Reserved,
        started: float | None = None,
        *,
        allow: Sequence[str] | None = None,
        form: Form = "fastest",
        split_for_bytes: int | None = None,
    ) -> Prepared:
        """`prepare` for a graph that has been profiled: what `profile` returned.

        started: when (time.monotonic()) what counts as planning began; now, if not given.
        allow: of "swap", "recompute", "reorder" what plans may do; all, if not given.
        form: of the step: with its large ops split, whole, or whichever has the fastest plan.
        split_for_bytes: a budget to split ops for in place of the device's own.
        """
        started = time.monotonic() if started is None else started
        graph_text, profile_text = profiled
        with translated():
            unplanned = outsize_core.liveness(graph_text, profile_text)["peak_bytes"]
        limits = self._beside_rollback(budgets(unplanned), graph_text)
        options: dict[str, Any] = {
            "planner": self._planner,
            "device": limits.device,
            "host": limits.host,
            "disk": limits.disk,
            "seed": self._seed,
            "border": list(border),
            "reserved": list(reserved),
        }
        if self._seconds is not None:
            options["seconds"] = self._seconds
        if self._work is not None:
            options["work"] = self._work
        if allow is not None:
            options["allow"] = sorted(allow)
        machine = self.machine()
        split_for_bytes = limits.device if split_for_bytes is None else split_for_bytes
        forms = self._forms(graph_text, profile_text, inputs, limits.device, split_for_bytes, form)
        (graph_text, profile_text), result = self._best_plan(forms, machine, options, limits)
        plan_text = str(result["plan"])
        with translated():
            simulated = outsize_core.simulate(graph_text, profile_text, machine, plan_text)
        planned_graph, plan = json.loads(graph_text), json.loads(plan_text)
        swapped, recomputed = swapped_and_recomputed(planned_graph, plan)
        kept, kept_s = self._rollback_price(graph_text, plan_text, machine)
        extent = result["extent"]
        if self._rollback_tier:
            extent = {**extent, self._rollback_tier: extent[self._rollback_tier] + kept}
        forecast = Forecast(
            planner=result["planner"],
            step_s=result["step_ns"] / 1e9 + kept_s,
            compute_s=result["compute_ns"] / 1e9,
            bound_s=result["bound_ns"] / 1e9,
            peak_bytes=extent["device"],
            host_bytes=extent["host"],
            disk_bytes=extent["disk"],
            floor_bytes=result["floor_bytes"],
            unplanned_peak_bytes=unplanned,
            moved=moved_bytes(result),
            swapped=swapped,
            recomputed=recomputed,
            runtime_bytes=int(json.loads(profile_text)["runtime_bytes"]),
            planning_s=time.monotonic() - started,
            timeline=[(at, held) for at, held in simulated["tiers"]["device"]["timeline"]],
            rollback_bytes=kept,
            rollback_s=kept_s,
        )
        names = rerun_names(planned_graph, plan)
        return Prepared(graph_text, profile_text, plan_text, forecast, names, self._rollback_tier)

    def _beside_rollback(self, limits: Budgets, graph_text: str) -> Budgets:
        """What is left for plans when any of the state that a step finds may be kept for undoing it."""
        if not self._rollback_tier:
            return limits
        state = sum(
            storage["bytes"]
            for storage in json.loads(graph_text)["storages"]
            if storage.get("persistent") and storage.get("entry")
        )
        budget: int = getattr(limits, self._rollback_tier)
        if state > budget:
            raise InfeasibleError(
                f"rollback=True keeps up to {format_bytes(state)} ({state} bytes) of the state beside the "
                f"plan in the {self._rollback_tier} tier, which may hold {format_bytes(budget)}. "
                f"Ways out: more {self._rollback_tier}, rollback=False"
            )
        return replace(limits, **{self._rollback_tier: budget - state})

    def _rollback_price(self, graph: str, plan: str, machine: str) -> tuple[int, float]:
        """Bytes that a step keeps, and the seconds that copying them adds at most."""
        if not self._rollback_tier:
            return 0, 0.0
        with translated():
            kept = outsize_core.rollback_bytes(graph, plan)
        link = json.loads(machine)["out" if self._rollback_tier == "host" else "write"]
        rate = link["bytes_per_s"]
        return kept, kept / rate if rate else 0.0

    def _forms(
        self,
        graph_text: str,
        profile_text: str,
        inputs: Mapping[int, torch.Tensor],
        device_bytes: int,
        split_for_bytes: int,
        form: Form,
    ) -> Iterator[tuple[str, str]]:
        """The step whole, unless the device is below its floor, and then split; each as (graph, profile)."""
        with translated():
            floor = outsize_core.floor(graph_text, profile_text)["bytes"]
        if form == "whole" or (form == "fastest" and floor <= device_bytes):
            yield graph_text, profile_text
        if form == "whole":
            return
        split = split_for(
            graph_text,
            profile_text,
            split_for_bytes,
            lambda rewritten: self.profile(rewritten, inputs),
            use_cache=self._use_cache,
            log=self._log,
        )
        if split is not None:
            yield split
        elif form == "split":
            raise InfeasibleError(
                "no op that is large beside the budget can be cut into parts of the same bits"
            )
        elif floor > device_bytes:
            yield graph_text, profile_text

    def _best_plan(
        self,
        forms: Iterator[tuple[str, str]],
        machine: str,
        options: dict[str, Any],
        limits: Budgets,
    ) -> tuple[tuple[str, str], dict[str, Any]]:
        """The form of the step with the fastest plan, and the plan. Splits cost dispatches and proofs, so
        that they are only looked at where the whole step has no plan or one much slower than its ops.
        """
        failures: list[InfeasibleError] = []
        best_form: tuple[str, str] | None = None
        best_plan: dict[str, Any] = {}
        for form in forms:
            try:
                found = self._plan(*form, machine, options, limits)
            except InfeasibleError as error:
                with translated():
                    error.floor_bytes = outsize_core.floor(*form)["bytes"]
                failures.append(error)
                continue
            if best_form is None or found["step_ns"] < best_plan["step_ns"]:
                best_form, best_plan = form, found
            if found["step_ns"] <= WORTH_SPLITTING * found["compute_ns"]:
                break
        if best_form is not None:
            return best_form, best_plan
        best = min(failures, key=lambda error: error.least_bytes or 1 << 62)
        ways = ["a smaller batch"]
        if best.least_bytes is not None:
            ways.insert(0, f"budget={best.least_bytes} or more")
        if self._planner != "outsize":
            ways.append('planner="outsize"')
        raise InfeasibleError(
            f"{best}. Ways out: {', '.join(ways)}",
            least_bytes=best.least_bytes,
            floor_bytes=best.floor_bytes,
        )

    def _plan(
        self,
        graph_text: str,
        profile_text: str,
        machine: str,
        options: dict[str, Any],
        limits: Budgets,
    ) -> dict[str, Any]:
        """From the cache, if one is there that fits."""
        # Free RAM is another at each start; a plan that fits in what there is now will do.
        keyed = {
            **options,
            "host": limits.host if limits.host_given else None,
            "disk": limits.disk > 0,
        }
        key = cache.digest_of(graph_text, profile_text, machine, json.dumps(keyed), _core_build())
        result = cache.load("plan", key, self._log) if self._use_cache else None
        if result is not None and all(
            result["extent"][tier] <= most
            for tier, most in (("host", limits.host), ("disk", limits.disk))
        ):
            return result
        with translated():
            result = dict(outsize_core.plan(graph_text, profile_text, machine, options))
        if self._use_cache:
            cache.store("plan", key, result, self._log)
        return result


def _resize(graph: dict[str, Any], storage: int, size: int) -> None:
    """A storage has other bytes than its values show: `mse_loss` makes all losses, then shrinks to one."""
    old = graph["storages"][storage]["bytes"]
    graph["storages"][storage]["bytes"] = size
    for op in graph["ops"]:
        for access in op.get("makes", []):
            if access[0] == storage and access[1:] == [0, old]:
                access[2] = size


def _core_build() -> str:
    """Names the build of the core: another build may plan differently."""
    built = os.stat(outsize_core.__file__)
    return f"{built.st_size} {built.st_mtime_ns}"
