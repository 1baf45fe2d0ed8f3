"""Plans public training traces inside budgets: Outsize's planner beside published and proved figures.

Three families, each in the op order of its trace. `recompute`: time over the time without a limit,
Checkmate's profiled graphs and random layered ones, beside Checkmate's optimum where a MILP solver
proves one and the best of DTR's heuristics elsewhere. `swap`: compute over step on G10's A100 traces and
link. `both`: swap and recompute, G10's and DTR's traces. Wanted: what the planner has to reach.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .commands import DONE, INFEASIBLE, Parser, version, write_json
from .instances import (
    Row,
    ask,
    cell,
    chosen,
    declare_search,
    imported,
    required_data,
    search_words,
)

MILP, DTR, REACHED = "MILP optimum", "best DTR heuristic", "round and replay"
HERE, MICRO23 = "measured here", "published: G10, MICRO'23"
# A plan at most this far above the proved optimum counts as optimal.
OPTIMUM_SLACK = 1.001


@dataclass(frozen=True)
class Case:
    """One trace at one budget, and what to hold the plan against."""

    family: str
    trace: str
    budget: str
    machine: str
    wanted: float | None  # None: no plan can exist, and the planner says so
    peer: str = ""
    peer_value: float | None = None
    source: str = HERE
    strict: bool = False  # better than wanted, not equal

    @property
    def name(self) -> str:
        return f"{self.trace} {self.budget}"

    @property
    def lower_is_better(self) -> bool:
        return self.family == "recompute"

    def met(self, value: float | None) -> bool:
        if self.wanted is None or value is None:
            return value is None and self.wanted is None
        if self.strict:
            return value < self.wanted if self.lower_is_better else value > self.wanted
        return value <= self.wanted if self.lower_is_better else value >= self.wanted


# Budget in percent of the peak: time over the time without a limit.
PROVED: dict[str, dict[int, float]] = {
    "VGG16_256": {95: 1.0077, 90: 1.0197, 85: 1.0197},
    "VGG19_256": {95: 1.0005, 90: 1.0010, 80: 1.0276},
    "fcn_8_vgg_32": {90: 1.0003, 80: 1.0014},
    "vgg_unet_32": {90: 1.0113, 80: 1.0198, 70: 1.0297, 60: 1.0445},
    "segnet_32": {90: 1.0010, 70: 1.0031, 60: 1.0043},
    "MobileNet_512": {50: 1.0164},
}
BEST_DTR: dict[str, dict[int, float]] = {
    "fcn_8_vgg_32": {70: 1.0160},
    "vgg_unet_32": {50: 1.0745, 40: 1.1748},
    "segnet_32": {50: 1.4226},
    "MobileNet_512": {
        90: 1.0018,
        80: 1.0038,
        70: 1.0068,
        60: 1.0109,
        40: 1.0260,
        30: 1.0459,
        20: 1.0933,
    },
    "ResNet50_256": {
        90: 1.0012,
        80: 1.0031,
        70: 1.0060,
        60: 1.0106,
        50: 1.0162,
        40: 1.0276,
        30: 1.0466,
        20: 1.0868,
    },
}
# Wanted, and the best DTR heuristic where one does not fail.
RANDOM: dict[str, dict[int, tuple[float, float | None]]] = {
    "random-n100": {90: (1.03, 1.403), 80: (1.3, None), 70: (2.0, None), 60: (99.0, None)},
    "random-n250": {90: (1.05, None), 80: (1.3, None), 70: (2.0, None)},
}

# Compute over step: wanted, then the peer's. Budgets in percent of the peak, or in bytes.
Fractions = dict[str, dict[str, tuple[float | None, float | None]]]
SWAP: Fractions = {
    "BERT-256": {
        "40GB": (0.995, 0.9965),
        "50%": (0.99, 0.9912),
        "35%": (0.955, 0.9522),
        "25%": (0.92, 0.9182),
        "15%": (0.88, 0.8821),
    },
    "VIT-1024": {
        "40GB": (0.995, 0.737),
        "50%": (0.93, 0.9107),
        "35%": (0.82, 0.8153),
        "25%": (0.76, 0.7593),
        "15%": (0.705, 0.7063),
    },
    "ResNet152-256": {"40GB": (0.995, None)},
    "Inceptionv3-512": {"40GB": (0.995, None)},
}
BOTH_G10: Fractions = {
    "VIT-1024": {
        "50%": (0.985, 0.9825),
        "35%": (0.975, 0.9754),
        "25%": (0.955, 0.9510),
        "15%": (0.90, 0.7070),
    },
    "BERT-256": {
        "50%": (0.996, 0.9955),
        "35%": (0.993, 0.9930),
        "25%": (0.98, 0.9727),
        "15%": (0.97, 0.9682),
    },
}
BOTH_DTR: Fractions = {
    "inceptionv4-64": {
        "50%": (0.967, 0.9663),
        "35%": (0.940, 0.9357),
        "25%": (0.920, 0.9099),
        "15%": (0.86, 0.7954),
    },
    "transformer-10": {
        "50%": (0.960, 0.9583),
        "35%": (0.949, 0.9471),
        "25%": (0.938, 0.9361),
        "15%": (0.90, 0.8742),
    },
    "tv_densenet121-84": {
        "50%": (0.92, 0.8687),
        "35%": (0.89, 0.8265),
        "25%": (0.82, 0.7440),
        "15%": (0.70, 0.4600),
    },
    "unet-6": {
        "50%": (0.955, 0.9483),
        "35%": (0.90, 0.8745),
        "25%": (0.70, 0.6347),
        "15%": (None, None),
    },
}


def cases() -> Iterator[Case]:
    for graph, optima in PROVED.items():
        for share, ratio in optima.items():
            wanted = ratio * OPTIMUM_SLACK
            yield recompute_case(graph, share, wanted, MILP, ratio)
    for graph, ratios in BEST_DTR.items():
        for share, ratio in ratios.items():
            yield recompute_case(graph, share, ratio, DTR, ratio, strict=True)
    for graph, pairs in RANDOM.items():
        for share, (limit, best) in pairs.items():
            yield recompute_case(graph, share, limit, DTR, best)
    for trace, rows in SWAP.items():
        for budget, (fraction, reached) in rows.items():
            published = budget == "40GB"
            peer, source = ("G10", MICRO23) if published else (REACHED, HERE)
            yield Case(
                "swap", f"g10-{trace}", budget, "a100-40gb-g10", fraction, peer, reached, source
            )
    for prefix, machine, traces in (
        ("g10", "a100-40gb-g10", BOTH_G10),
        ("dtr", "v100-16gb-pcie3", BOTH_DTR),
    ):
        for trace, rows in traces.items():
            for budget, (fraction, reached) in rows.items():
                yield Case("both", f"{prefix}-{trace}", budget, machine, fraction, REACHED, reached)


def recompute_case(
    graph: str, share: int, wanted: float, peer: str, value: float | None, strict: bool = False
) -> Case:
    trace, budget = f"checkmate-{graph}", f"{share}%"
    return Case("recompute", trace, budget, "unit", wanted, peer, value, HERE, strict)


ALLOWED = {"recompute": "recompute", "swap": "swap", "both": "swap,recompute"}


def plan(graph: Path, case: Case, options: list[str]) -> dict[str, Any]:
    """The fields of `outsize plan` for one case."""
    host = "0" if case.family == "recompute" else "1TB"
    words = ["plan", graph, "--machine", case.machine, "--device", case.budget, "--host", host]
    return ask(*words, "--allow", ALLOWED[case.family], *options)


def row_of(case: Case, fields: dict[str, Any], seconds: float) -> Row:
    """
    >>> case = Case("swap", "g10-x", "50%", "unit", 0.9, REACHED, 0.8)
    >>> row = row_of(case, {"compute_ns": 95, "step_ns": 100, "bound_ns": 96}, 1.0)
    >>> row.outsize, round(row.bound, 4), row.ok
    (0.95, 0.9896, True)
    """
    compute = float(fields["compute_ns"])
    step = fields["step_ns"]

    def value(ns: int | None) -> float | None:
        if ns is None:
            return None
        return ns / compute if case.lower_is_better else compute / ns

    return Row(
        family=case.family,
        case=case.name,
        outsize=value(step),
        peer=case.peer,
        peer_value=case.peer_value,
        peer_source=case.source if case.peer else "",
        better="lower" if case.lower_is_better else "higher",
        bound=value(fields["bound_ns"]) if step is not None else None,
        wanted=case.wanted,
        ok=case.met(value(step)),
        seconds=seconds,
        first_plan_seconds=fields.get("first_plan_seconds"),
    )


def line(row: Row) -> str:
    mark = "ok    " if row.ok else "missed"
    sign = "<=" if row.better == "lower" else ">="
    wanted = f"{sign} {cell(row.wanted)}" if row.wanted is not None else "no plan"
    first = "" if row.first_plan_seconds is None else f"{row.first_plan_seconds:6.2f}"
    return (
        f"{mark} {row.family:<9} {row.case:<30} {cell(row.outsize):>7}  wanted {wanted:<10}"
        f"  bound {cell(row.bound):>7}  {row.peer:<18} {cell(row.peer_value):>7}"
        f"  first {first:>6} s of {row.seconds:5.1f}"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = Parser("python -m outsize.bench planning", __doc__ or "")
    parser.add_argument("--only", metavar="TEXT", help="cases whose family or name has TEXT in it")
    parser.add_argument("--planner", default="outsize", help="outsize by default")
    declare_search(parser, seconds=10.0)
    parser.add_argument("--json", metavar="FILE", help="the rows; - is standard output")
    options = parser.parse_args(arguments)
    wanted = chosen(parser, options.only, cases(), lambda case: f"{case.family} {case.name}")
    data = required_data(parser)
    words = [*search_words(options), "--planner", options.planner]
    output = sys.stderr if options.json == "-" else sys.stdout
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        for case in wanted:
            graph = imported(data, case.trace, Path(scratch))
            began = time.monotonic()
            fields = plan(graph, case, words)
            rows.append(row := row_of(case, fields, time.monotonic() - began))
            print(line(row), file=output, flush=True)
    met = sum(row.ok for row in rows)
    print(f"{met} of {len(rows)} as wanted", file=output)
    write_json(options.json, {"outsize": version(), "rows": [row.fields() for row in rows]})
    return DONE if met == len(rows) else INFEASIBLE
