"""`outsize.estimate`: what a step needs, before any step has run.

    print(outsize.estimate(train_step, batch))     # train_step: decorated by outsize.step

It captures the step, measures its ops and plans it at several budgets. Nothing of the user's changes, and
nothing is loaded: the next call of the step finds its ops measured.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

import outsize_core

from .budgets import format_bytes, parse_bytes
from .core import translated
from .errors import InfeasibleError
from .forecast import Forecast
from .graph_words import module_of, op_words
from .planning import Budgets, Planner
from .step import Step, check_decorated

SHARES = ("100%", "75%", "50%", "35%", "25%", "12.5%")
SECONDS_PER_BUDGET = 2.0
_MODULES_SHOWN = 8
_NO_LIMIT = 1 << 62  # bytes: no step is below its floor


@dataclass(frozen=True)
class BudgetRow:
    """What one budget would give; `forecast` is None where no plan was found."""

    budget_bytes: int
    forecast: Forecast | None
    least_bytes: int | None = None  # where there is none: the least budget that would do

    @property
    def fits(self) -> bool:
        return self.forecast is not None


@dataclass(frozen=True)
class Estimate:
    """Sizes in bytes, at the moment of the unplanned step's peak; times in seconds.

    by_class: role of the storage -> bytes. by_module: module that made or owns it -> bytes.
    peak_op, floor_op: the ops that set the peak and the floor, with module and line.
    """

    unplanned_peak_bytes: int
    peak_op: str
    floor_bytes: int
    floor_op: str
    compute_s: float
    by_class: dict[str, int]
    by_module: dict[str, int]
    rows: tuple[BudgetRow, ...]

    def __str__(self) -> str:
        lines = [
            f"unplanned peak {format_bytes(self.unplanned_peak_bytes)}, at {self.peak_op}",
            f"floor          {format_bytes(self.floor_bytes)}, set by {self.floor_op}",
            "at the peak    " + _shares(self.by_class, self.unplanned_peak_bytes),
            "by module      " + _shares(self.by_module, self.unplanned_peak_bytes),
            "",
            f"{'budget':>10} {'step s':>8} {'x compute':>9} {'host or disk':>12} {'moved a step':>13} {'rerun':>6}",
        ]
        for row in self.rows:
            lines.append(f"{format_bytes(row.budget_bytes):>10} {_row_words(row)}")
        return "\n".join(lines)


def _shares(sizes: dict[str, int], whole: int) -> str:
    shown = list(sizes.items())[:_MODULES_SHOWN]
    rest = sum(sizes.values()) - sum(size for _, size in shown)
    words = [f"{name or '(the step itself)'} {size / whole:.0%}" for name, size in shown if size]
    return ", ".join(words) + (f", others {rest / whole:.0%}" if rest else "")


def _row_words(row: BudgetRow) -> str:
    forecast = row.forecast
    if forecast is None:
        least = f"; {format_bytes(row.least_bytes)} would do" if row.least_bytes else ""
        return f"no plan{least}"
    below = forecast.host_bytes + forecast.disk_bytes
    moved = sum(forecast.moved.values())
    return (
        f"{forecast.step_s:8.3f} {forecast.step_s / forecast.compute_s:9.2f} {format_bytes(below):>12} "
        f"{format_bytes(moved):>13} {forecast.recomputed_ops:6d}"
    )


def estimate(
    step: Step, *args: Any, budgets: Sequence[str | int] = SHARES, **kwargs: Any
) -> Estimate:
    """What `step` needs on these arguments, and what each of `budgets` would give.

    step: decorated by `outsize.step`; its own budget doesn't matter here, its host, disk, planner and
    machine do. budgets: bytes ("6GiB") or shares of the unplanned peak ("50%"). Of the state that is
    there: before the first step the optimizer's is made by it, and later steps may need more.
    Raises BadInputError for a step that isn't decorated and CaptureError for what can't be captured.
    """
    check_decorated(
        step, "estimate(outsize.step(model, optimizer, budget='100%')(function), batch)"
    )
    for budget in budgets:
        parse_bytes(budget, peak_bytes=1 << 60)
    captured, inputs = step.captured(*args, **kwargs)
    planner = step.planner(seconds=SECONDS_PER_BUDGET)
    profiled = planner.profile(captured.graph, inputs)
    rows = tuple(_row(step, planner, profiled, inputs, budget) for budget in budgets)
    return _described(*profiled, rows)


def _row(
    step: Step,
    planner: Planner,
    profiled: tuple[str, str],
    inputs: dict[int, torch.Tensor],
    budget: str | int,
) -> BudgetRow:
    chosen: list[Budgets] = []

    def limits(peak_bytes: int) -> Budgets:
        chosen.append(step.limits(parse_bytes(budget, peak_bytes), peak_bytes))
        return chosen[-1]

    try:
        forecast = planner.plan(profiled, inputs, limits, [], []).forecast
    except InfeasibleError as error:
        return BudgetRow(chosen[-1].device, None, error.least_bytes)
    return BudgetRow(chosen[-1].device, forecast)


def _described(graph_text: str, profile_text: str, rows: tuple[BudgetRow, ...]) -> Estimate:
    graph = json.loads(graph_text)
    with translated():
        found = outsize_core.explain(graph_text, profile_text, _NO_LIMIT)
    by_class: dict[str, int] = {}
    by_module: dict[str, int] = {}
    for holder in found["holders"]:
        storage = graph["storages"][holder["storage"]]
        _add(by_class, storage["role"], holder["bytes"])
        _add(by_module, _owner(graph, storage, holder["made_by"]), holder["bytes"])
    peak_op, floor_op = found["peak_op"], found["floor_op"]
    if found["workspace_bytes"] > 0:
        _add(by_class, "workspace", found["workspace_bytes"])
        _add(by_module, module_of(graph["ops"][peak_op]), found["workspace_bytes"])
    return Estimate(
        unplanned_peak_bytes=found["peak_bytes"],
        peak_op=op_words(peak_op, graph["ops"][peak_op]),
        floor_bytes=found["floor_bytes"],
        floor_op=op_words(floor_op, graph["ops"][floor_op]),
        compute_s=sum(op["ns"] for op in json.loads(profile_text)["ops"]) / 1e9,
        by_class=_largest_first(by_class),
        by_module=_largest_first(by_module),
        rows=rows,
    )


def _add(sizes: dict[str, int], name: str, size: int) -> None:
    sizes[name] = sizes.get(name, 0) + size


def _largest_first(sizes: dict[str, int]) -> dict[str, int]:
    return dict(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))


def _owner(graph: dict[str, Any], storage: dict[str, Any], made_by: int) -> str:
    """The module of a parameter, or of the op that makes an activation; "" of what is there before."""
    kind, _, name = storage.get("name", "").partition(":")
    if kind in ("param", "grad", "buffer", "state") and name:
        return str(name.rpartition(":")[2].rpartition(".")[0])
    return module_of(graph["ops"][made_by]) if made_by >= 0 else ""
