"""Every planner by name on the same steps, budgets and simulator: docs/comparison.md and its picture.

Nets written here, the literature's that `outsize generate` makes, and public traces where they are
there. For each planner and budget: its step over the sum of the step's ops (1 is a step without a
limit), bytes swapped, ops run again, the time that planning took, and where it has no plan the least
budget at which it would. Wanted: a plan of `outsize` wherever any planner has one.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .commands import BAD_USE, DONE, INFEASIBLE, Parser, version, write_file, write_json
from .instances import (
    ask,
    chosen,
    command_path,
    data_folder,
    declare_search,
    imported,
    search_words,
)
from .nets import NETS
from .planners_page import page, picture

V100 = "v100-16gb-pcie3"
PERCENTS = (75, 50, 30)
# Modes for tests, and `vdnn`, which is the better of the two that it tries.
LEFT_OUT = ("swap-everything", "recompute-everything", "vdnn")


@dataclass(frozen=True)
class Step:
    """A training step: how its graph is made in a folder, and whose links it is planned for."""

    name: str
    machine: str
    write: Callable[[Path], Path]
    host: str | None = None  # None: the machine's

    @property
    def what(self) -> str:
        link = " without a host: only recomputation" if self.host == "0" else ""
        return f"{self.name}, {self.machine}{link}"


@dataclass(frozen=True)
class Outcome:
    """What one planner did with one step inside one budget."""

    graph: str
    percent: int  # of the peak in program order
    planner: str
    step_over_compute: float | None  # None: no plan
    bound_over_compute: float
    swapped_bytes: int | None  # out and in
    recomputed: float | None  # time of the ops run again, over compute
    reruns: int | None
    seconds: float
    least_of_peak: float | None  # no plan: the least budget at which there is one, if any
    why: str  # there is no plan


def net_step(name: str, batch: int) -> Step:
    def write(folder: Path) -> Path:
        path = folder / f"{name}-{batch}.json"
        machine = ask("machine", "show", V100)
        path.write_text(json.dumps(NETS[name](batch).file(machine)), encoding="utf-8")
        return path

    return Step(f"{name}-{batch}", V100, write)


def generated_step(model: str, batch: int) -> Step:
    def write(folder: Path) -> Path:
        path = folder / f"{model}-{batch}.json"
        ask("generate", model, "--batch", batch, "--machine", V100, "-o", path)
        return path

    return Step(f"{model}-{batch}", V100, write)


def trace_step(data: Path, trace: str, machine: str, host: str | None = None) -> Step:
    return Step(trace, machine, lambda folder: imported(data, trace, folder), host)


def steps() -> list[Step]:
    """Those that can be made here."""
    found = [
        net_step("cnn", 16),
        net_step("transformer", 16),
        net_step("unet", 16),
        generated_step("inception-4", 128),
        generated_step("wresnet-152-4", 64),
    ]
    data = data_folder()
    if data is not None:
        found += [
            trace_step(data, "checkmate-vgg_unet_32", "unit", host="0"),
            trace_step(data, "dtr-tv_densenet121-84", V100),
            trace_step(data, "g10-BERT-256", "a100-40gb-g10", host="1TB"),
        ]
    return found


def known_planners() -> list[str]:
    import torch  # noqa: F401  (the core is linked against it)

    import outsize_core

    return [name for name in outsize_core.planner_names() if name not in LEFT_OUT]


def outcome(graph: str, percent: int, peak: int, row: dict[str, Any]) -> Outcome:
    """
    >>> row = {"planner": "p", "step_ns": 12, "compute_ns": 10, "recompute_ns": 1, "bound_ns": 11,
    ...        "moved": {"out": 3, "in": 4, "write": 0, "read": 0}, "reruns": 1, "seconds": 0.5}
    >>> one = outcome("g", 50, 100, row)
    >>> one.step_over_compute, one.swapped_bytes, one.recomputed, one.least_of_peak
    (1.2, 7, 0.1, None)
    """
    compute = row["compute_ns"]
    moved, recompute_ns, least = row.get("moved"), row.get("recompute_ns"), row.get("least_budget")
    return Outcome(
        graph=graph,
        percent=percent,
        planner=row["planner"],
        step_over_compute=None if row["step_ns"] is None else row["step_ns"] / compute,
        bound_over_compute=row["bound_ns"] / compute,
        swapped_bytes=sum(moved.values()) if moved else None,
        recomputed=None if recompute_ns is None else recompute_ns / compute,
        reruns=row.get("reruns"),
        seconds=row["seconds"],
        least_of_peak=None if least is None else least / peak,
        why=row.get("error", {}).get("message", ""),
    )


def measure(
    step: Step, graph: Path, percent: int, planners: Iterable[str], options: list[str]
) -> list[Outcome]:
    words = ["compare", graph, "--machine", step.machine, "--device", f"{percent}%"]
    host = [] if step.host is None else ["--host", step.host]
    fields = ask(*words, *host, "--planners", ",".join(planners), *options)
    peak = fields["peak_program_order"]
    return [outcome(step.name, percent, peak, row) for row in fields["rows"]]


def lacking(outcomes: Iterable[Outcome]) -> list[str]:
    """Cases in which some planner has a plan and `outsize` has none."""
    plans: dict[str, set[str]] = {}
    for one in outcomes:
        names = plans.setdefault(f"{one.graph} {one.percent}%", set())
        if one.step_over_compute is not None:
            names.add(one.planner)
    return [case for case, names in plans.items() if names and "outsize" not in names]


def line(outcomes: list[Outcome]) -> str:
    """One case: the planners that have a plan, fastest first."""
    planned = [one for one in outcomes if one.step_over_compute is not None]
    planned.sort(key=lambda one: (one.step_over_compute, one.planner))
    parts = [f"{one.planner} {one.step_over_compute:.4f}" for one in planned]
    title = f"{outcomes[0].graph} {outcomes[0].percent}%"
    return f"{title:<32} {', '.join(parts) or 'no plan'}"


def main(arguments: list[str] | None = None) -> int:
    parser = Parser("python -m outsize.bench planners", __doc__ or "")
    parser.add_argument("--only", metavar="TEXT", help="cases with TEXT in their name: unet, 50%%")
    parser.add_argument("--planners", metavar="LIST", help="all but forced modes by default")
    parser.add_argument(
        "--docs", metavar="FOLDER", type=Path, help="writes comparison.md and comparison.svg there"
    )
    declare_search(parser, seconds=5.0)
    parser.add_argument("--json", metavar="FILE", help="the rows; - is standard output")
    options = parser.parse_args(arguments)
    if not command_path().is_file():
        parser.exit(BAD_USE, f"{parser.prog}: error: no {command_path()}: run make build\n")
    cases = [(step, percent) for step in steps() for percent in PERCENTS]
    wanted = chosen(parser, options.only, cases, lambda case: f"{case[0].name} {case[1]}%")
    planners = options.planners.split(",") if options.planners else known_planners()
    search = search_words(options)
    output = sys.stderr if options.json == "-" else sys.stdout
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as scratch:
        graphs: dict[str, Path] = {}
        for step, percent in wanted:
            if step.name not in graphs:
                graphs[step.name] = step.write(Path(scratch))
            found = measure(step, graphs[step.name], percent, planners, search)
            outcomes += found
            print(line(found), file=output, flush=True)
    without = lacking(outcomes)
    for case in without:
        print(f"outsize has no plan, others have: {case}", file=output)
    rows = [asdict(one) for one in outcomes]
    if options.docs is not None:
        described = {step.name: step.what for step, _ in wanted}
        write_file(options.docs / "comparison.svg", picture(rows))
        write_file(options.docs / "comparison.md", page(rows, described, search))
    write_json(options.json, {"outsize": version(), "search": search, "rows": rows})
    return INFEASIBLE if without else DONE
