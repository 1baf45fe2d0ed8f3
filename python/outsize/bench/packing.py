"""Packs public instances: height over the lower bound, and CPU time, beside what other packers reach.

`challenging`: MiniMalloc's A to K at their published capacity, beside minimalloc's CPU time. `large`: instances of
thousands of buffers; `trace`: the storages of public training traces in program order (`outsize pack GRAPH`).
Waste: height ÷ most bytes live at once - 1. Every packing is checked here from the file that was written.
"""

from __future__ import annotations

import bisect
import csv
import resource
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .commands import DONE, INFEASIBLE, Parser, version, write_json
from .instances import ask, chosen, declare_search, imported, required_data, search_words

CAPACITY = 1_048_576
HERE = "measured here"
# CPU seconds of minimalloc at the capacity.
MINIMALLOC = {
    "A": 5.72,
    "B": 4.44,
    "C": 0.90,
    "D": 4.24,
    "E": 4.32,
    "F": 5.90,
    "G": 1.22,
    "H": 1.70,
    "I": 3.69,
    "J": 1.50,
    "K": 0.68,
}
MINIMALLOC_SUM = 34.3


@dataclass(frozen=True)
class Case:
    """One instance: what to find, and the waste that a peer reaches in `peer_seconds`."""

    family: str
    name: str
    capacity: int  # 0: as low as can be
    peer: str
    peer_waste: float | None
    peer_seconds: float | None
    wanted_waste: float
    wanted_seconds: float | None = None


LARGE = (
    Case("large", "resnet50", 0, "minimalloc", 0.0, 0.54, 0.0, 5),
    Case("large", "G_1", 0, "area/first-fit", 0.0, None, 0.0, 5),
    Case("large", "pangu_2.6B", 0, "SOMAS", 0.00758, 27.7, 0.00757, 28),
)
# The better of minimalloc and SOMAS on much the same instance; lives differ a little in the dtr ones.
TRACES: dict[str, tuple[str, float, float]] = {
    "dtr-unet-6": ("SOMAS", 0.0, 0.04),
    "dtr-transformer-10": ("minimalloc", 0.0, 13.3),
    "dtr-tv_densenet121-84": ("minimalloc", 0.0, 39.2),
    "dtr-inceptionv4-64": ("minimalloc", 0.0, 55.6),
    "g10-BERT-256": ("SOMAS", 0.0, 0.3),
    "g10-VIT-1024": ("minimalloc", 0.0, 2.8),
    "g10-Inceptionv3-512": ("ggml", 0.0107, 0.1),
    "g10-ResNet152-256": ("minimalloc", 0.0, 24.0),
}


def cases() -> list[Case]:
    challenging = [
        Case("challenging", name, CAPACITY, "minimalloc", None, seconds, 0.0)
        for name, seconds in MINIMALLOC.items()
    ]
    traces = [
        Case("trace", name, 0, peer, waste, seconds, waste, 5)
        for name, (peer, waste, seconds) in TRACES.items()
    ]
    return [*challenging, *LARGE, *traces]


@dataclass(frozen=True)
class Row:
    """What was reached, beside the peer."""

    family: str
    case: str
    outsize: float  # waste; challenging: CPU seconds
    peer: str
    peer_value: float | None
    peer_source: str
    better: str
    bound: int
    height: int
    fits: bool
    cpu_seconds: float
    seconds: float
    method: str
    ok: bool


def overlap_in(path: Path) -> str | None:
    """Two buffers of a packed CSV that share a byte, or None.

    A sweep over time that keeps who is live ordered by offset: neighbours alone can meet first.
    """
    with path.open(newline="", encoding="utf-8") as file:
        rows = [
            (int(r["lower"]), int(r["upper"]), int(r["offset"]), int(r["size"]), r["id"])
            for r in csv.DictReader(file)
        ]
    moments = sorted(
        [(upper, 0, i) for i, (_, upper, *_rest) in enumerate(rows)]
        + [(lower, 1, i) for i, (lower, *_rest) in enumerate(rows)]
    )
    live: list[tuple[int, int]] = []
    for _, begins, i in moments:
        lower, upper, offset, size, name = rows[i]
        if size == 0 or lower == upper:
            continue
        at = bisect.bisect_left(live, (offset, i))
        if not begins:
            live.pop(at)
            continue
        for other_offset, other in live[max(at - 1, 0) : at + 1]:
            if max(offset, other_offset) < min(offset + size, other_offset + rows[other][3]):
                return f"{name} and {rows[other][4]}"
        live.insert(at, (offset, i))
    return None


def run(case: Case, source: Path, out: Path, options: list[str]) -> Row:
    limit = ["--capacity", str(case.capacity)] if case.capacity else []
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    fields = ask("pack", source, *limit, *options, "-o", out)
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    fits = fields.get("fits", True)
    wrong = overlap_in(out) if fits else None
    if wrong:
        raise RuntimeError(f"{case.name}: {wrong} share a byte")
    timed = case.family == "challenging"
    in_time = case.wanted_seconds is None or cpu <= case.wanted_seconds
    return Row(
        family=case.family,
        case=case.name,
        outsize=cpu if timed else fields["waste"],
        peer=case.peer,
        peer_value=case.peer_seconds if timed else case.peer_waste,
        peer_source=HERE,
        better="lower",
        bound=fields["lower_bound"],
        height=fields["height"],
        fits=fits,
        cpu_seconds=cpu,
        seconds=seconds,
        method=fields["method"],
        ok=fits and (timed or (fields["waste"] <= case.wanted_waste and in_time)),
    )


def line(row: Row) -> str:
    mark = "ok    " if row.ok else "missed"
    unit = " s" if row.family == "challenging" else " %"
    scale = 1 if row.family == "challenging" else 100
    peer = "-" if row.peer_value is None else f"{scale * row.peer_value:.3f}{unit}"
    return (
        f"{mark} {row.family:<11} {row.case:<24} {scale * row.outsize:8.4f}{unit}"
        f"  {row.peer:<14} {peer:>9}  height {row.height:>14,}  {row.cpu_seconds:6.2f} s CPU  {row.method}"
    )


def total(rows: list[Row]) -> Row:
    """A to K together: all solved, in less CPU time than minimalloc."""
    cpu = sum(row.cpu_seconds for row in rows)
    fits = all(row.fits for row in rows)
    return Row(
        "challenging", "A-K", cpu, "minimalloc", MINIMALLOC_SUM, HERE, "lower", CAPACITY, CAPACITY,
        fits, cpu, sum(row.seconds for row in rows), "all", fits and cpu < MINIMALLOC_SUM,
    )  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = Parser("python -m outsize.bench packing", __doc__ or "")
    parser.add_argument("--only", metavar="TEXT", help="cases whose family or name has TEXT in it")
    declare_search(parser, seconds=28.0)
    parser.add_argument("--json", metavar="FILE", help="the rows; - is standard output")
    options = parser.parse_args(arguments)
    wanted = chosen(parser, options.only, cases(), lambda case: f"{case.family} {case.name}")
    data = required_data(parser)
    words = search_words(options)
    output = sys.stderr if options.json == "-" else sys.stdout
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        for case in wanted:
            source = data / "pack" / f"{case.name}{f'.{CAPACITY}' if case.capacity else ''}.csv"
            if case.family == "trace":
                source = imported(data, case.name, Path(scratch))
            rows.append(row := run(case, source, Path(scratch) / "packed.csv", words))
            print(line(row), file=output, flush=True)
    challenging = [row for row in rows if row.family == "challenging"]
    if len(challenging) == len(MINIMALLOC):
        rows.append(row := total(challenging))
        print(line(row), file=output)
    met = sum(row.ok for row in rows)
    print(f"{met} of {len(rows)} as wanted", file=output)
    fields: dict[str, Any] = {"outsize": version(), "rows": [asdict(row) for row in rows]}
    write_json(options.json, fields)
    return DONE if met == len(rows) else INFEASIBLE
