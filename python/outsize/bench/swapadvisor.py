"""SwapAdvisor's evaluation (ASPLOS'20), rebuilt: its figures beside what is planned and simulated here.

The models of its Table 1 on a 16 GB V100 behind PCIe 3.0. Values are fractions of the throughput that
unlimited memory would give (the paper's Ideal). Figure 6: its 13 rows; 7: WResNet-152-4; 9: the best
plan over time; 10: without the search of orders, without that of allocations. `same` is `outsize` with
SwapAdvisor's freedom (order, addresses, swaps), `all` with everything, `bound` what no plan can beat.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .commands import DONE, INFEASIBLE, Parser, version, write_json
from .instances import ask, command_path

MACHINE = "v100-16gb-pcie3"
HOST = "244GB"  # of a p3.8xlarge, as the paper where 61 GB are too few
SAME_FREEDOM = "swap,reorder"
PUBLISHED = "published: SwapAdvisor, ASPLOS'20"


@dataclass(frozen=True)
class Case:
    """One model at one batch, with the paper's samples per second."""

    figure: int
    model: str
    batch: int
    ideal: float | None
    odswap: float | None
    swapadvisor: float | None

    @property
    def name(self) -> str:
        return f"{self.model} {self.batch}"

    def published(self, samples_per_s: float | None) -> float | None:
        """As a fraction of Ideal; None where the paper has neither."""
        if self.ideal is None or samples_per_s is None:
            return None
        return samples_per_s / self.ideal


FIGURE_6 = [
    Case(6, "rnn-8-8k", 128, 14.5, 0.53, 12.2),
    Case(6, "rnn-8-8k", 256, 14.7, 1.07, 11.2),
    Case(6, "brnn-4-8k", 64, 7.97, 0.64, 6.04),
    Case(6, "brnn-4-8k", 128, 10.9, 1.18, 8.81),
    Case(6, "wresnet-152-10", 16, 3.85, 2.90, 3.56),
    Case(6, "wresnet-152-10", 32, 4.07, 3.34, 3.85),
    Case(6, "wresnet-152-10", 64, 4.21, 3.49, 4.07),
    Case(6, "inception-4", 16, 12.7, 10.4, 12.5),
    Case(6, "inception-4", 32, 13.8, 9.97, 13.6),
    Case(6, "inception-4", 64, 14.2, 6.25, 10.0),
    Case(6, "nasnet-25", 16, 7.06, 2.40, 5.95),
    Case(6, "nasnet-25", 32, 8.82, 2.66, 5.30),
    Case(6, "nasnet-25", 64, 9.46, 2.38, 5.02),
]
# Samples per second; the paper gives no Ideal here.
FIGURE_7 = [
    Case(7, "wresnet-152-4", 16, None, 14.0, 14.2),
    Case(7, "wresnet-152-4", 32, None, 14.3, 15.0),
    Case(7, "wresnet-152-4", 64, None, 11.5, 15.2),
]
# Full, without orders, without allocations; samples per second. The batches are not named there.
FIGURE_10 = {
    ("rnn-8-8k", 128): (12.2, 0.77, 6.93),
    ("inception-4", 32): (13.6, 12.7, 11.5),
}
FIGURE_9 = [("rnn-8-8k", 128), ("nasnet-25", 64)]


@dataclass
class Measured:
    """Fractions of ideal by planner; None: no plan."""

    case: Case
    ideal_per_s: float
    fractions: dict[str, float | None] = field(default_factory=dict)
    histories: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    bound: float | None = None

    @property
    def ok(self) -> bool:
        """Whether `same` reaches the paper's fraction."""
        wanted = self.case.published(self.case.swapadvisor)
        had = self.fractions.get("same")
        return wanted is None or (had is not None and had >= wanted)

    def row(self) -> dict[str, Any]:
        ours = self.fractions.get("same")
        return {
            "case": f"figure {self.case.figure}: {self.case.name}",
            "outsize": ours,
            "peer": "SwapAdvisor",
            "peer_value": self.case.published(self.case.swapadvisor),
            "peer_source": PUBLISHED,
            "better": "higher",
            "bound": self.bound,
            "ok": self.ok,
            "ideal_per_s": self.ideal_per_s,
            "paper": asdict(self.case),
            "fractions": self.fractions,
            "histories": self.histories,
        }


class Bench:
    """Plans cases with the command; graphs are kept in `folder`."""

    def __init__(self, folder: Path, limits: list[str]) -> None:
        self._folder = folder
        self._limits = limits

    def graph(self, model: str, batch: int) -> Path:
        path = self._folder / f"{model}-{batch}.json"
        if not path.exists():
            ask("generate", model, "--batch", batch, "--machine", MACHINE, "-o", path)
        return path

    def plan(self, model: str, batch: int, planner: str, allow: str) -> dict[str, Any]:
        words = ["plan", self.graph(model, batch), "--machine", MACHINE, "--host", HOST]
        words += ["--planner", planner, "--allow", allow, "-o", self._folder / "plan.json"]
        return ask(*words, *self._limits)

    def case(self, case: Case, planners: dict[str, tuple[str, str]]) -> Measured:
        """One row: every planner of `planners` (name, freedom) by its title."""
        measured = Measured(case, 0.0)
        for title, (planner, allow) in planners.items():
            fields = self.plan(case.model, case.batch, planner, allow)
            measured.fractions[title] = fields.get("ideal")
            measured.histories[title] = fields.get("history") or []
            if fields.get("compute_ns"):
                measured.ideal_per_s = case.batch * 1e9 / fields["compute_ns"]
            if title == "same" and fields.get("bound_ns"):
                measured.bound = fields["compute_ns"] / fields["bound_ns"]
        return measured


PLANNERS = {
    "odswap": ("odswap", SAME_FREEDOM),
    "swapadvisor": ("swapadvisor", SAME_FREEDOM),
    "same": ("outsize", SAME_FREEDOM),
    "all": ("outsize", "swap,recompute,reorder,split"),
}
ABLATIONS = {
    "full": ("swapadvisor", SAME_FREEDOM),
    "no orders": ("swapadvisor", "swap"),
    "no allocations": ("swapadvisor-fixed-classes", SAME_FREEDOM),
}


def percent(value: float | None) -> str:
    """
    >>> percent(0.842), percent(None)
    ('84 %', '-')
    """
    return "-" if value is None else f"{100 * value:.0f} %"


def figure_lines(measured: Measured) -> str:
    """A row of figure 6 or 7: the paper's fraction in brackets; figure 7 in samples per second."""
    case, had = measured.case, measured.fractions
    cells = [f"{case.name:18}", f"{measured.ideal_per_s:6.2f}"]
    for title, paper in (("odswap", case.odswap), ("swapadvisor", case.swapadvisor)):
        if case.ideal is None:
            value = had.get(title)
            ours = "-" if value is None else f"{value * measured.ideal_per_s:.1f}"
            cells.append(f"{ours:>6} ({paper}/s)")
        else:
            cells.append(f"{percent(had.get(title)):>6} ({percent(case.published(paper))})")
    cells += [f"{percent(had.get(title)):>6}" for title in ("same", "all")]
    cells += [f"{percent(measured.bound):>6}", "" if measured.ok else "  below the paper's"]
    return "  ".join(cells)


def ablation_line(model: str, batch: int, had: Measured, paper: tuple[float, ...]) -> str:
    cells = [f"{model} {batch}".ljust(18)]
    for title, published in zip(ABLATIONS, paper, strict=True):
        value = had.fractions.get(title)
        ours = "-" if value is None else f"{value * had.ideal_per_s:.2f}"
        cells.append(f"{title} {ours}/s ({published}/s)")
    return "  ".join(cells)


def convergence_line(measured: Measured) -> str:
    """The best plan so far, at the times at which there was a better one."""
    points = measured.histories.get("swapadvisor", [])
    batch = measured.case.batch
    shown = points if len(points) <= 6 else [points[i * (len(points) - 1) // 5] for i in range(6)]
    told = ", ".join(f"{seconds:.0f} s: {batch * 1e9 / ns:.2f}/s" for seconds, ns in shown)
    return f"{measured.case.name:18}  {told}"


def summary(rows: list[Measured]) -> str:
    """Mean fraction of ideal, ours beside the paper's, over the rows that have both."""
    pairs = [(m.fractions.get("swapadvisor"), m.case.published(m.case.swapadvisor)) for m in rows]
    both = [(had, paper) for had, paper in pairs if had is not None and paper is not None]
    if not both:
        return "no row of figure 6 was planned"
    had = sum(h for h, _ in both) / len(both)
    paper = sum(p for _, p in both) / len(both)
    met = sum(m.ok for m in rows)
    return (
        f"mean fraction of ideal, swapadvisor: {percent(had)} (paper: {percent(paper)}) over"
        f" {len(both)} of {len(rows)} rows; same freedom at least the paper's in {met}"
    )


def run(bench: Bench, figures: set[int], only: str) -> list[Measured]:
    """Plans what was asked for, printing each row as it is done."""
    done: list[Measured] = []
    for case in FIGURE_6 + FIGURE_7:
        if case.figure not in figures or only not in case.name:
            continue
        if not done:
            print(
                "model, batch        ideal/s  odswap (paper)  swapadvisor (paper)  same  all  bound"
            )
        measured = bench.case(case, PLANNERS)
        done.append(measured)
        print(figure_lines(measured), flush=True)
    sixth = [m for m in done if m.case.figure == 6]
    if sixth:
        print(summary(sixth))
    for model, batch in FIGURE_9:
        if 9 not in figures or only not in f"{model} {batch}":
            continue
        case = Case(9, model, batch, None, None, None)
        done.append(bench.case(case, {"swapadvisor": PLANNERS["swapadvisor"]}))
        print("figure 9:", convergence_line(done[-1]), flush=True)
    for (model, batch), paper in FIGURE_10.items():
        if 10 not in figures or only not in f"{model} {batch}":
            continue
        case = Case(10, model, batch, None, None, None)
        done.append(bench.case(case, ABLATIONS))
        print("figure 10:", ablation_line(model, batch, done[-1], paper), flush=True)
    return done


def main(arguments: list[str] | None = None) -> int:
    parser = Parser("python -m outsize.bench swapadvisor", __doc__ or "")
    parser.add_argument("--figures", default="6,7,9,10", metavar="LIST", help="of 6, 7, 9, 10")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has this")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="per plan")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="per plan")
    parser.add_argument("--json", metavar="FILE", help="the rows; - is standard output")
    options = parser.parse_args(arguments)
    words = options.figures.split(",")
    if not set(words) <= {"6", "7", "9", "10"}:
        parser.error(f"--figures {options.figures}: wanted some of 6,7,9,10")
    if not command_path().exists():
        parser.error(f"no {command_path()}; run make build")
    limits = ["--seconds", str(options.seconds), "--threads", str(options.threads)]
    with tempfile.TemporaryDirectory() as folder:
        done = run(Bench(Path(folder), limits), {int(word) for word in words}, options.only)
    if not done:
        parser.error(f"no case has {options.only!r} in its name")
    rows = [measured.row() for measured in done]
    write_json(options.json, {"outsize": version(), "rows": rows})
    return DONE if all(measured.ok for measured in done) else INFEASIBLE


if __name__ == "__main__":
    sys.exit(main())
