"""What a comparison showed: a line a step, the checks with wanted and had, and the JSON fields."""

from __future__ import annotations

import mmap
import statistics
from dataclasses import asdict, dataclass
from typing import Any

from outsize.budgets import format_bytes

from .comparison import CONTROL_LIMIT, Comparison, same_run
from .process import Fields
from .short_runs import ABOVE_FLOOR, FLOOR_PLANNER, PROCESS_LIMIT, Limited, ShortRuns

GROWTH_LIMIT = 64 << 20  # of the planned process's anonymous memory, after capture
FORECAST_BAND = 0.1
RATIO_LIMIT, RATIO_GOAL = 1.20, 1.08
LARGE_PEAK = 10**9
SWAPPED_ROLES = ("parameter", "gradient", "optimizer_state")
DROPOUT_OPS = ("dropout", "bernoulli")  # eager CPU dropout draws its mask with bernoulli_


@dataclass(frozen=True)
class Check:
    """One claim. Exit status depends on those that `must` hold; times depend on the machine's load."""

    name: str
    ok: bool
    had: str
    wanted: str
    must: bool = True


def percent_of_bound(forecast: Fields, step_s: float) -> float:
    """How near a step came to the time that no plan can beat: 100 is as fast as can be."""
    return 100.0 * float(forecast["bound_s"]) / step_s


STEP_TITLE = (
    " step      loss  bits |  peak MB  forecast |  time s  forecast  unplanned |"
    "    moved  forecast | of bound"
)


def step_line(comparison: Comparison, index: int) -> str:
    """One planned step, measured beside forecast. Unplanned times are those of the same turn."""
    step = comparison.planned.steps[index]
    reference = comparison.unplanned.steps[index]
    record, forecast = step["record"], step["record"]["forecast"]
    runs = (comparison.unplanned, comparison.control)
    turn = [run.steps[index]["step_s"] for run in runs if index < len(run.steps)]
    equal = step["loss"] == reference["loss"] and step["generators"] == reference["generators"]
    moved = [format_bytes(sum(each["moved"].values())) for each in (record, forecast)]
    return (
        f"{index + 1:5d}  {float.fromhex(step['loss']):8.4f}  {'=' if equal else 'NOT':>4} |"
        f" {record['peak_bytes'] / 1e6:8.1f}  {forecast['peak_bytes'] / 1e6:8.1f} |"
        f" {step['step_s']:7.2f}  {forecast['step_s']:8.2f}  {min(turn):9.2f} |"
        f" {moved[0]:>8}  {moved[1]:>8} |"
        f" {percent_of_bound(forecast, step['step_s']):6.0f} %"
    )


def describe_forecast(comparison: Comparison) -> str:
    """What is promised before the first step runs."""
    forecast = comparison.first_forecast
    moved = ", ".join(f"{name} {format_bytes(n)}" for name, n in forecast["moved"].items() if n)
    return "\n".join(
        [
            f"  unplanned peak  {format_bytes(comparison.eager_peak_bytes)}, measured",
            f"  budget          {format_bytes(comparison.budget_bytes)}"
            f" ({comparison.budget_bytes / comparison.eager_peak_bytes:.3f} of it)",
            f"  floor           {format_bytes(forecast['floor_bytes'])}",
            f"  forecast peak   {format_bytes(forecast['peak_bytes'])}",
            f"  forecast time   {forecast['step_s']:.2f} s a step; no plan in its order is faster than"
            f" {forecast['bound_s']:.2f} s here (gap {forecast['gap']:.3f})",
            f"  forecast moved  {moved or 'nothing'}; {forecast['recomputed_ops']} ops run again",
            f"  planned in      {comparison.prepare_s:.1f} s, capture included",
        ]
    )


def passes(name: str, limited: Limited, losses: list[str], must: bool = True) -> Check:
    """An unplanned run that has what it needs: it gets to the reference's losses."""
    ok = limited.message is None and limited.losses == losses[: len(limited.losses)]
    return Check(name, ok, limited.said, "passed", must)


def must_fail(name: str, limited: Limited) -> Check:
    """An unplanned run that has too little: it fails, and for no other reason."""
    ok = limited.message is not None and wants_memory(limited.message)
    return Check(name, ok, limited.said, "failed: can't allocate memory")


def wants_memory(message: str) -> bool:
    """Whether an error says that memory ran out: PyTorch's words, Python's, or libgomp's.

    >>> wants_memory("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
    True
    """
    words = ("can't allocate memory", "memoryerror", "cannot allocate", "thread creation failed")
    return any(word in message.lower() for word in (*words, "std::bad_alloc"))


def bit_checks(comparison: Comparison) -> list[Check]:
    unplanned, control, planned = comparison.unplanned, comparison.control, comparison.planned
    checks = []
    count = len(planned.digests)
    for name, run, difference in (
        ("planned = unplanned", planned, same_run(unplanned, planned)),
        ("unplanned = unplanned", control, comparison.control_difference),
    ):
        equal = f"every bit equal: {len(run.steps)} losses, {count} states at the end"
        checks.append(Check(name, difference is None, difference or equal, "every bit equal"))
    given_back = comparison.closed_digests == planned.digests
    had = "every bit equal" if given_back else "states changed"
    checks.append(Check("after close()", given_back, had, "every bit equal"))
    imported = [run.ended["outsize_imported"] for run in (unplanned, control)]
    had = "imported" if any(imported) else "never imported"
    checks.append(Check("outsize in unplanned", not any(imported), had, "never imported"))
    return checks


def whole_pages(*sizes: int) -> int:
    """
    >>> whole_pages(1, mmap.PAGESIZE) // mmap.PAGESIZE
    2
    """
    return sum(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE for size in sizes)


def memory_checks(comparison: Comparison) -> list[Check]:
    budget, peak = comparison.budget_bytes, comparison.measured_peak_bytes
    growth = comparison.anonymous_growth()
    runtime = comparison.forecast["runtime_bytes"]
    shared, allowed = comparison.shared_growth(), whole_pages(budget, comparison.host_bytes)
    return [
        Check(
            f"peak, all {len(comparison.planned.steps)} steps",
            peak <= budget,
            f"{peak:,} B",
            f"at most {budget:,} B",
        ),
        Check(
            "process beside the arenas",
            growth <= GROWTH_LIMIT,
            f"grew {growth / (1 << 20):.1f} MiB after capture; kernel libraries' own"
            f" {runtime / (1 << 20):.1f} MiB",
            f"at most {GROWTH_LIMIT >> 20} MiB",
        ),
        Check(
            "arena and host slab",
            shared <= allowed,
            f"{shared:,} B, as the kernel counts them",
            f"at most {allowed:,} B",
        ),
    ]


def limit_checks(comparison: Comparison, beside: ShortRuns) -> list[Check]:
    losses = comparison.unplanned.losses
    # Had the control not passed, the comparison would have ended there.
    control = Limited(int(CONTROL_LIMIT * comparison.eager_peak_bytes), losses=losses)
    # malloc's own slack outweighs the tensors of a small run.
    large = comparison.eager_peak_bytes >= LARGE_PEAK
    return [
        must_fail("unplanned, tensors in the budget", beside.allocator_at_budget),
        must_fail("unplanned, heap in the budget", beside.process_at_budget),
        passes(f"unplanned, tensors in {CONTROL_LIMIT} peak", control, losses),
        passes(f"unplanned, heap in {PROCESS_LIMIT} peak", beside.process_at_peak, losses, large),
    ]


def floor_checks(beside: ShortRuns) -> list[Check]:
    floor = beside.floor
    if floor is None:
        return []
    name = f"floor x {ABOVE_FLOOR}"
    budget = format_bytes(floor.budget_bytes)
    equal = f"every bit equal: {len(floor.steps)} steps in {budget}, planned by {FLOOR_PLANNER}"
    checks = [
        Check(
            f"{name}: bits", floor.difference is None, floor.difference or equal, "every bit equal"
        ),
        Check(
            f"{name}: peak",
            0 < floor.measured_peak_bytes <= floor.budget_bytes,
            f"{floor.measured_peak_bytes:,} B",
            f"at most {floor.budget_bytes:,} B",
        ),
    ]
    for role in SWAPPED_ROLES:
        swapped = floor.swapped.get(role, 0)
        title = f"{name}: {role.replace('_', ' ')}"
        checks.append(Check(title, swapped > 0, f"{format_bytes(swapped)} swapped", "some"))
    dropouts = sum(
        count for op, count in floor.recomputed.items() if any(part in op for part in DROPOUT_OPS)
    )
    had = f"{dropouts} of {sum(floor.recomputed.values())} recomputed ops"
    checks.append(Check(f"{name}: dropout", dropouts > 0, had, "some"))
    return checks


def forecast_checks(comparison: Comparison) -> list[Check]:
    first, steady = comparison.first_forecast, comparison.forecast
    return [
        Check(
            "planned / unplanned",
            comparison.ratio <= RATIO_LIMIT,
            f"{comparison.ratio:.3f}",
            f"at most {RATIO_LIMIT:.2f}; goal {RATIO_GOAL:.2f}",
            comparison.settings.ratio_must_hold,
        ),
        time_check("time forecast before step 1", comparison.first_plan_step_s, first),
        time_check("time forecast, steady step", comparison.planned_step_s, steady),
        Check(
            "forecast of the peak",
            comparison.measured_peak_bytes <= comparison.predicted_peak_bytes,
            f"measured {comparison.measured_peak_bytes:,} B",
            f"at most the forecast's {comparison.predicted_peak_bytes:,} B",
        ),
    ]


def time_check(name: str, measured: float, forecast: Fields) -> Check:
    """A forecast against the steps that its plan is of. It is said, and fails nothing: the ops were timed at
    another moment, when the machine may have been faster or slower."""
    predicted = float(forecast["step_s"])
    off = measured / predicted - 1.0
    return Check(
        name,
        abs(off) <= FORECAST_BAND,
        f"measured {measured:.2f} s, forecast {predicted:.2f} s ({off:+.1%})",
        f"within {FORECAST_BAND:.0%}",
        must=False,
    )


def all_checks(comparison: Comparison, beside: ShortRuns) -> list[Check]:
    return [
        *bit_checks(comparison),
        *memory_checks(comparison),
        *limit_checks(comparison, beside),
        *floor_checks(beside),
        *forecast_checks(comparison),
    ]


def check_lines(checks: list[Check]) -> list[str]:
    """The table at the end: claim, whether it holds, what was found, what was wanted."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        mark = "ok" if check.ok else ("FAILED" if check.must else "missed")
        cut = check.ok and len(check.had) > 100
        had = check.had[:97] + "..." if cut else check.had
        plain = check.ok and check.had.startswith(check.wanted)
        wanted = "" if plain else f"  (wanted: {check.wanted})"
        lines.append(f"  {mark:<6}  {check.name:<{width}}  {had}{wanted}")
    return lines


def summary_lines(comparison: Comparison) -> list[str]:
    """Times, medians of interleaved steps."""
    first = comparison.first_interleaved
    planned, forecast = comparison.planned_step_s, comparison.forecast
    rows = [
        ("planned", planned),
        ("unplanned, default malloc", comparison.control.median_s(first)),
        ("unplanned, tuned malloc", comparison.unplanned.median_s(first)),
    ]
    lines = [f"  {name:<28}{step_s:8.2f} s a step" for name, step_s in rows]
    lines.append(f"  {'planned / faster unplanned':<28}{comparison.ratio:8.3f}")
    lines.append(f"  {'control (tuned / default)':<28}{rows[2][1] / rows[1][1]:8.3f}")
    lines.append(f"  {'of the bound':<28}{percent_of_bound(forecast, planned):7.0f} %")
    return lines


def json_fields(
    comparison: Comparison, beside: ShortRuns, checks: list[Check], version: str, seconds: float
) -> dict[str, Any]:
    """The fields of `--json`: bytes are integers, times are seconds."""
    settings, built = comparison.settings, comparison.unplanned.built
    steady = comparison.planned.steps[comparison.first_interleaved]["record"]
    forecast = without_timeline(comparison.forecast)
    first = comparison.first_interleaved
    return {
        "outsize": version,
        "model": settings.model,
        "parameters": built["parameters"],
        "batch": built["batch"],
        "input": built["input"],
        "threads": built["threads"],
        "budget_bytes": comparison.budget_bytes,
        "eager_peak_bytes": comparison.eager_peak_bytes,
        "measured_peak_bytes": comparison.measured_peak_bytes,
        "predicted_peak_bytes": comparison.predicted_peak_bytes,
        "bit_equal": same_run(comparison.unplanned, comparison.planned) is None,
        "control_bit_equal": comparison.control_difference is None,
        "control_steps": len(comparison.control.steps),
        "steps": settings.steps,
        "eager_step_s": comparison.eager_step_s,
        "eager_default_malloc_step_s": comparison.control.median_s(first),
        "eager_tuned_malloc_step_s": comparison.unplanned.median_s(first),
        "eager_cpu_s": comparison.control.median_s(first, "cpu_s"),
        "eager_tuned_malloc_cpu_s": comparison.unplanned.median_s(first, "cpu_s"),
        "planned_step_s": comparison.planned_step_s,
        "planned_cpu_s": comparison.planned.median_s(first, "cpu_s"),
        "ratio": comparison.ratio,
        "predicted_step_s": forecast["step_s"],
        "bound_s": forecast["bound_s"],
        "moved": steady["moved"],
        "recomputed_ops": steady["recomputed_ops"],
        "floor_bytes": forecast["floor_bytes"],
        "prepare_s": comparison.prepare_s,
        "eager_at_budget": beside.allocator_at_budget.said,
        "losses": [float.fromhex(loss) for loss in comparison.planned.losses],
        "options": settings.options,
        "limits": {
            "tensors_at_budget": asdict(beside.allocator_at_budget),
            "heap_at_budget": asdict(beside.process_at_budget),
            "heap_at_peak": asdict(beside.process_at_peak),
        },
        "floor_run": floor_fields(beside),
        "memory": {
            "after_build": comparison.planned.built["memory"],
            "after_plan": {str(index + 1): m for index, m in comparison.after_plan.items()},
            "at_the_end": comparison.planned.steps[-1]["memory"],
            "anonymous_growth_after_capture": comparison.anonymous_growth(),
            "shared_growth_after_build": comparison.shared_growth(),
            "runtime_bytes": comparison.forecast["runtime_bytes"],
        },
        "first_forecast": without_timeline(comparison.first_forecast),
        "forecast": forecast,
        "each_step": [step_fields(comparison, index) for index in range(settings.steps)],
        "checks": [asdict(check) for check in checks],
        "seconds": seconds,
    }


def without_timeline(forecast: Fields) -> Fields:
    return {key: value for key, value in forecast.items() if key != "timeline"}


def floor_fields(beside: ShortRuns) -> Fields | None:
    floor = beside.floor
    if floor is None:
        return None
    return {
        "planner": FLOOR_PLANNER,
        "budget_bytes": floor.budget_bytes,
        "measured_peak_bytes": floor.measured_peak_bytes,
        "steps": len(floor.steps),
        "bit_equal": floor.difference is None,
        "difference": floor.difference,
        "swapped": floor.swapped,
        "recomputed": floor.recomputed,
        "recomputed_ops": floor.recomputed_ops,
        "step_s": statistics.median([step["step_s"] for step in floor.steps] or [0.0]),
    }


def step_fields(comparison: Comparison, index: int) -> Fields:
    step = comparison.planned.steps[index]
    record = step["record"]
    control = next(iter(comparison.control.steps[index : index + 1]), None)
    return {
        "step": index + 1,
        "loss": float.fromhex(step["loss"]),
        "planned_s": step["step_s"],
        "unplanned_s": control["step_s"] if control else None,
        "unplanned_tuned_malloc_s": comparison.unplanned.steps[index]["step_s"],
        "peak_bytes": record["peak_bytes"],
        "live_peak_bytes": record["live_peak_bytes"],
        "moved": record["moved"],
        "recomputed_ops": record["recomputed_ops"],
        "forecast_step_s": record["forecast"]["step_s"],
        "forecast_peak_bytes": record["forecast"]["peak_bytes"],
        "forecast_moved": record["forecast"]["moved"],
        "memory": step["memory"],
    }
