"""The page of `bench planners`: one table of all rows, one picture, and how both were made."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from outsize.budgets import format_bytes

Row = Mapping[str, Any]  # the fields of an Outcome

CELL_WIDTH, CELL_HEIGHT, LEFT, TOP = 48, 24, 112, 66
GRAPH_GAP = 10  # between the columns of two graphs
NO_PLAN = "#eceff1"
# The colour of a step as fast as one without a limit, and of one SLOWEST times as long or longer.
FAST, SLOW, SLOWEST = (27, 127, 59), (198, 40, 40), 4.0

LEAD = """# Planners, side by side

Every planner by name on the same training steps, at the same budgets, on one simulator: each plan
passed the checker, has addresses in one address space, and its time is that of the plan as the
executor would run it. What each planner is and what was reconstructed: [papers.md](papers.md).

![step time over compute, by planner, step and budget](comparison.svg)
"""

COLUMNS = """*Time* is the step's over the sum of its ops: 1 is a step without a limit. *Bound* is what no plan
of this step inside this budget can beat, as far as one is known. *Swapped* counts both directions.
*Run again* is the time of ops that ran once more, over compute. Where a planner has no plan, *time*
says the least budget at which it has one, in percent of the peak in program order, or `-` where
there is none or none may exist (a planner that only swaps on a machine without a host, `checkmate`
on a step of more than 150 ops).
"""


def color(ratio: float) -> str:
    """Between FAST at 1 and SLOW at SLOWEST, by the logarithm.

    >>> color(1.0), color(4.0) == color(9.0)
    ('#1b7f3b', True)
    """
    part = min(1.0, max(0.0, math.log(ratio) / math.log(SLOWEST))) ** 0.6
    middle = (245, 200, 66)
    low, high, at = (FAST, middle, 2 * part) if part < 0.5 else (middle, SLOW, 2 * part - 1)
    mixed = [round(a + (b - a) * at) for a, b in zip(low, high, strict=True)]
    return "#" + "".join(f"{value:02x}" for value in mixed)


def short_time(row: Row) -> str:
    """The time, or what budget it takes.

    >>> short_time({"step_over_compute": 1.0546, "least_of_peak": None})
    '1.055'
    >>> short_time({"step_over_compute": None, "least_of_peak": 0.5612})
    'from 57 %'
    """
    if row["step_over_compute"] is not None:
        return f"{row['step_over_compute']:.3f}"
    return "-" if row["least_of_peak"] is None else f"from {percent_from(row)} %"


def percent_from(row: Row) -> int:
    return math.ceil(float(row["least_of_peak"]) * 100)


def in_order(rows: Sequence[Row], name: str) -> list[Any]:
    """The values of a field, each once, as they come."""
    return list(dict.fromkeys(row[name] for row in rows))


def planners_by_speed(rows: Sequence[Row]) -> list[str]:
    """Most cases planned first, then by the geometric mean of the times in those."""

    def key(planner: str) -> tuple[int, float, str]:
        logs = [
            math.log(row["step_over_compute"])
            for row in rows
            if row["planner"] == planner and row["step_over_compute"] is not None
        ]
        return -len(logs), sum(logs) / len(logs) if logs else 0.0, planner

    return sorted(in_order(rows, "planner"), key=key)


def picture(rows: Sequence[Row]) -> str:
    """An SVG: a row a planner, a column a step and budget, the colour its time over compute."""
    planners = planners_by_speed(rows)
    columns: dict[tuple[str, int], float] = {}
    titles: list[tuple[str, float]] = []
    x = float(LEFT)
    for graph in in_order(rows, "graph"):
        titles.append((graph, x))
        for percent in in_order([row for row in rows if row["graph"] == graph], "percent"):
            columns[graph, percent] = x
            x += CELL_WIDTH
        x += GRAPH_GAP
    width, height = x, TOP + CELL_HEIGHT * len(planners) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
        f' width="{width:g}" height="{height:g}" font-family="system-ui, sans-serif"'
        ' font-size="11" role="img" aria-label="step time over compute">',
        f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>',
    ]
    for index, (graph, at) in enumerate(titles):
        # Two heights, as a name may be wider than its columns.
        y = 16 if index % 2 == 0 else 32
        parts.append(f'<text x="{at:g}" y="{y}" font-weight="600">{html.escape(graph)}</text>')
    for (_, percent), at in columns.items():
        parts.append(text(at + CELL_WIDTH / 2, TOP - 8, f"{percent} %", "#52606d"))
    for row in rows:
        at = columns[row["graph"], row["percent"]]
        parts.append(square(row, at, TOP + CELL_HEIGHT * planners.index(row["planner"])))
    for index, planner in enumerate(planners):
        y = TOP + CELL_HEIGHT * index + 16
        parts.append(
            f'<text x="{LEFT - 8}" y="{y}" text-anchor="end">{html.escape(planner)}</text>'
        )
    parts.append(
        f'<text x="{LEFT}" y="{height - 12:g}" fill="#52606d">step time over the sum of the ops;'
        " grey: no plan in this budget, and the budget, in % of the peak, from which there is one"
        "</text></svg>\n"
    )
    return "\n".join(parts)


def text(x: float, y: float, words: str, fill: str) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="{fill}">{html.escape(words)}</text>'
    )


def square(row: Row, x: float, y: float) -> str:
    ratio = row["step_over_compute"]
    fill, ink, words = NO_PLAN, "#8795a1", "-"
    if ratio is not None:
        fill, words = color(ratio), f"{ratio:.2f}"
        ink = "#1d2733" if 1.02 < ratio < 2.2 else "#ffffff"
    elif row["least_of_peak"] is not None:
        words = f"{percent_from(row)} %"
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{CELL_WIDTH - 2}" height="{CELL_HEIGHT - 2}" rx="3"'
        f' fill="{fill}"/>{text(x + CELL_WIDTH / 2 - 1, y + 15, words, ink)}'
    )


def table(rows: Sequence[Row]) -> str:
    """One row a case and planner, in the order measured."""
    titles = ("step", "budget", "planner", "time", "bound", "swapped", "run again", "plan s")
    lines = ["| " + " | ".join(titles) + " |", "|" + " --- |" * len(titles)]
    for row in rows:
        planned = row["step_over_compute"] is not None
        cells = (
            row["graph"],
            f"{row['percent']} %",
            row["planner"],
            short_time(row),
            f"{row['bound_over_compute']:.3f}" if planned else "",
            format_bytes(row["swapped_bytes"]) if planned else "",
            f"{row['recomputed']:.1%}" if planned else "",
            f"{row['seconds']:.2f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def tally(rows: Sequence[Row]) -> str:
    """Per planner: in how many cases it has a plan, and in how many none is faster."""
    cases: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        times = cases.setdefault((row["graph"], row["percent"]), [])
        if row["step_over_compute"] is not None:
            times.append(row["step_over_compute"])
    lines = ["| planner | has a plan | fastest, within 0.1 % |", "| --- | --- | --- |"]
    for planner in planners_by_speed(rows):
        planned = [
            row
            for row in rows
            if row["planner"] == planner and row["step_over_compute"] is not None
        ]
        first = sum(
            row["step_over_compute"] <= 1.001 * min(cases[row["graph"], row["percent"]])
            for row in planned
        )
        lines.append(f"| {planner} | {len(planned)} of {len(cases)} | {first} |")
    return "\n".join(lines)


def page(rows: Sequence[Row], steps: Mapping[str, str], search: Sequence[str]) -> str:
    """Markdown. `steps`: what each step is, by name; `search`: the options of each plan."""
    listed = "\n".join(f"- {what}" for what in steps.values())
    again = f"python -m outsize.bench planners {' '.join(search)} --docs docs"
    return f"""{LEAD}
## How to repeat it

```
{again}
```

Each plan had the search limit that the command says; planners that make one plan need less. Graphs
are written by the bench, made by `outsize generate`, or traces of the public instances, left out
where these are not there. Steps and machines:

{listed}

## Tally

{tally(rows)}

## All plans

{COLUMNS}
{table(rows)}
"""
