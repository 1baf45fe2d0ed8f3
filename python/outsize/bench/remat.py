"""Recompute planners on public training traces: each planner's time over the time without a limit.

`sqrt-n`, `dtr` under four heuristics, and `outsize` allowed to recompute only, on Checkmate's
profiled graphs and DTR's traces, in the order of each trace. Beside DTR's figures, in brackets, what
its authors' simulator reached; `bound` is what no plan in that order can beat, `optimum` what a MILP
solver proved for Checkmate's program. Wanted: within 1 % of the simulator at budgets of 60 % and
more, within 5 % below. Its figures are of bytes alone; ours are plans with addresses.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from .commands import DONE, INFEASIBLE, Parser, version, write_json
from .instances import ask, cell, chosen, imported, required_data
from .planning import PROVED

DTR = ("dtr", "dtr-eq-class", "dtr-msps", "dtr-lru")
PLANNERS = ("sqrt-n", *DTR, "outsize")
# How far from DTR's own figures: NEAR at budgets of NEAR_FROM percent of the peak and more, FAR below.
NEAR, FAR, NEAR_FROM = 0.01, 0.05, 60

# Trace, then budget in percent of the peak, then h_DTR, eq-class, MSPS, LRU; None: not known.
Figures = dict[str, dict[int, tuple[float | None, ...]]]
PUBLISHED: Figures = {
    "checkmate-VGG16_256": {
        90: (1.0197, 1.0197, 1.0197, 1.0249),
    },
    "checkmate-VGG19_256": {
        90: (1.0012, 1.0012, 1.001, 1.2268),
        80: (1.0625, 1.0625, 1.0285, 1.2885),
    },
    "checkmate-fcn_8_vgg_32": {
        90: (1.0014, 1.0014, 1.0003, 1.0014),
        80: (1.0014, 1.0014, 1.0017, 1.0304),
        70: (1.0304, 1.0304, 1.016, 1.0304),
    },
    "checkmate-vgg_unet_32": {
        90: (1.0116, 1.0116, 1.0165, 1.0181),
        80: (1.0342, 1.0342, 1.0336, 1.026),
        70: (1.0392, 1.0392, 1.0441, 1.0458),
        60: (1.0531, 1.0531, 1.0516, 1.1105),
        50: (1.0745, 1.0745, 1.1189, 1.7396),
        40: (1.1748, 1.1748, 1.4251, None),
    },
    "checkmate-segnet_32": {
        90: (1.0011, 1.0011, 1.002, 1.4167),
        70: (1.0038, 1.0038, 1.0039, 1.4189),
        60: (1.0044, 1.0044, 1.0056, 1.4568),
        50: (1.4226, 1.4226, 1.4236, 1.8995),
    },
    "checkmate-MobileNet_512": {
        90: (1.0018,),
        80: (1.0038,),
        70: (1.0068,),
        60: (1.0109,),
        50: (1.0202, 1.0202, 1.0178, 1.0367),
        40: (1.0278, None, 1.026),
        30: (1.0469, None, 1.0459),
        20: (1.1025, 1.1025, 1.0933, 1.2119),
    },
    "checkmate-ResNet50_256": {
        90: (1.0012,),
        80: (1.0036,),
        70: (1.0069,),
        60: (1.0108,),
        50: (1.0173,),
        40: (1.0298,),
        30: (1.0473,),
        20: (1.0887,),
    },
    "dtr-unet-6": {
        90: (1.033, None, None, 1.039),
        80: (1.058, None, None, 1.062),
        70: (1.085, None, None, 1.104),
        60: (1.131, None, None, 1.225),
        50: (1.159,),
    },
    "dtr-transformer-10": {
        90: (1.009, None, None, 1.033),
        80: (1.02, None, None, 1.065),
        70: (1.031, None, None, 1.098),
        60: (1.044, None, None, 1.134),
        50: (1.058,),
        40: (1.083,),
        30: (1.123,),
        20: (1.352,),
    },
    "dtr-inceptionv4-64": {
        90: (1.008, 1.008, None, 1.025),
        80: (1.024, 1.024, None, 1.043),
        70: (1.05, 1.044, None, 1.069),
        60: (1.068, 1.066, None, 1.09),
        50: (1.092, 1.092),
        40: (1.131, 1.138),
        30: (1.219, 1.244),
    },
    "dtr-tv_densenet121-84": {
        90: (1.026, 1.026, None, 1.031),
        80: (1.064, 1.064, None, 1.062),
        70: (1.104, 1.104, None, 1.096),
        60: (1.141, 1.141),
        50: (1.176, 1.176),
        40: (1.271, 1.293),
        30: (1.446, 1.426),
        20: (1.679, 1.616),
    },
}


@dataclass(frozen=True)
class Cell:
    """One planner on one trace at one budget; ratios of step time to the time without a limit."""

    trace: str
    percent: int
    planner: str
    ratio: float | None  # None: no plan
    peer: float | None
    bound: float | None
    why: str = ""  # there is no plan

    @property
    def off(self) -> float | None:
        """How far from the peer's figure, as a part of it; negative is faster."""
        return None if self.ratio is None or self.peer is None else self.ratio / self.peer - 1

    @property
    def ok(self) -> bool:
        """
        >>> Cell("t", 60, "dtr", 1.01, 1.0, None).ok, Cell("t", 60, "dtr", 1.02, 1.0, None).ok
        (True, False)
        >>> Cell("t", 50, "dtr", 1.02, 1.0, None).ok, Cell("t", 50, "dtr", None, 1.0, None).ok
        (True, False)
        """
        if self.planner not in DTR or self.peer is None:
            return True
        limit = NEAR if self.percent >= NEAR_FROM else FAR
        return self.off is not None and self.off <= limit + 1e-9


def peer_of(trace: str, percent: int, planner: str) -> float | None:
    if planner in DTR:
        figures = PUBLISHED.get(trace, {}).get(percent, ())
        index = DTR.index(planner)
        return figures[index] if index < len(figures) else None
    return None


def measure(graph: Path, trace: str, percent: int, planner: str, options: list[str]) -> Cell:
    words = ["plan", graph, "--machine", "unit", "--device", f"{percent}%", "--host", "0"]
    fields = ask(*words, "--allow", "recompute", "--planner", planner, *options)
    step, peer = fields.get("step_ns"), peer_of(trace, percent, planner)
    if step is None:
        why = str(fields.get("error", {}).get("message", ""))
        return Cell(trace, percent, planner, None, peer, None, why)
    compute = float(fields["compute_ns"])
    return Cell(trace, percent, planner, step / compute, peer, fields["bound_ns"] / compute)


def rows() -> Iterator[tuple[str, int]]:
    for trace, budgets in PUBLISHED.items():
        for percent in budgets:
            yield trace, percent


def text_of(cells: list[Cell]) -> str:
    """One line: each planner's ratio, with the peer's in brackets, and the sharpest bound."""
    parts = [f"{cells[0].trace:<24}{cells[0].percent:>4}%"]
    for one in cells:
        peer = f" ({cell(one.peer)})" if one.peer is not None else ""
        parts.append(f"{cell(one.ratio)}{peer}{'' if one.ok else ' !'}".ljust(19))
    bounds = [one.bound for one in cells if one.planner == "outsize" and one.bound is not None]
    optimum = PROVED.get(cells[0].trace.removeprefix("checkmate-"), {}).get(cells[0].percent)
    return " ".join([*parts, cell(max(bounds, default=None)), cell(optimum)])


def main(arguments: list[str] | None = None) -> int:
    parser = Parser("python -m outsize.bench remat", __doc__ or "")
    parser.add_argument("--only", metavar="TEXT", help="cases whose trace or budget has TEXT in it")
    parser.add_argument("--planners", default=",".join(PLANNERS), help="all by default")
    parser.add_argument("--seconds", type=float, default=10.0, help="per plan; 10 by default")
    parser.add_argument("--json", metavar="FILE", help="the cells; - is standard output")
    options = parser.parse_args(arguments)
    data = required_data(parser)
    wanted = chosen(parser, options.only, rows(), lambda row: f"{row[0]} {row[1]}%")
    planners = options.planners.split(",")
    limit = ["--seconds", str(options.seconds)]
    output = sys.stderr if options.json == "-" else sys.stdout
    header = " ".join(name.ljust(19) for name in planners)
    print(f"{'time / unlimited time':<29} {header} bound   optimum", file=output)
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory() as scratch:
        for trace, percent in wanted:
            graph = imported(data, trace, Path(scratch))
            row = [measure(graph, trace, percent, planner, limit) for planner in planners]
            cells += row
            print(text_of(row), file=output, flush=True)
    held = [one for one in cells if one.planner in DTR and one.peer is not None]
    near = sum(one.ok for one in held)
    print(f"{near} of {len(held)} DTR figures as wanted", file=output)
    fields = [asdict(one) | {"off": one.off, "ok": one.ok} for one in cells]
    write_json(options.json, {"outsize": version(), "cells": fields})
    return DONE if near == len(held) else INFEASIBLE
