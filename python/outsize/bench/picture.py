"""A page that opens in a browser: memory over a step, unplanned and planned, forecast and measured.

Self-contained: inline SVG, a few lines of script for the read-out under the pointer, no other files.
Curves are thinned to what a screen can show; every peak stays.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .commands import write_file
from .comparison import Comparison
from .report import Check, percent_of_bound
from .short_runs import ShortRuns

Point = tuple[float, float]
WIDTH, HEIGHT = 960, 320
LEFT, RIGHT, TOP, BOTTOM = 76, 20, 14, 46
SLOTS = 700  # of a curve, over time: about one a pixel


@dataclass(frozen=True)
class Line:
    """A curve: `stairs` hold their value until the next point, others join points."""

    name: str
    points: Sequence[Point]
    color: str
    dashed: bool = False
    filled: bool = False
    stairs: bool = True
    dots: bool = False


@dataclass(frozen=True)
class Limit:
    """A horizontal line with a name."""

    name: str
    value: float
    color: str = "#c62828"


def thin(points: Sequence[tuple[int, int]], slots: int = SLOTS) -> list[tuple[int, int]]:
    """At most about 4 points in each of `slots` equal stretches of time: first, lowest, highest, last.

    >>> thin([(0, 5), (1, 9), (2, 1), (3, 4), (100, 6)], slots=2)
    [(0, 5), (1, 9), (2, 1), (3, 4), (100, 6)]
    """
    if not points:
        return []
    begin, end = points[0][0], points[-1][0]
    span = max(end - begin, 1)
    kept: list[tuple[int, int]] = []
    slot: list[tuple[int, int]] = []
    slot_number = 0

    def close() -> None:
        if slot:
            indices = range(len(slot))
            chosen = {
                0,
                min(indices, key=lambda i: slot[i][1]),
                max(indices, key=lambda i: slot[i][1]),
                len(slot) - 1,
            }
            kept.extend(slot[index] for index in sorted(chosen))

    for point in points:
        number = (point[0] - begin) * slots // (span + 1)
        if number != slot_number:
            close()
            slot, slot_number = [], number
        slot.append(point)
    close()
    return kept


def ticks(highest: float, wanted: int = 6) -> list[float]:
    """Round numbers from 0 to at least `highest`.

    >>> ticks(4.4)
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / wanted
    scale = 10.0 ** math.floor(math.log10(rough))
    apart = next(scale * factor for factor in (1, 2, 2.5, 5, 10) if scale * factor >= rough)
    count = math.ceil(highest / apart - 1e-9)
    return [round(index * apart, 10) for index in range(count + 1)]


def chart(
    name: str,
    lines: Sequence[Line],
    x_title: str,
    y_title: str,
    limits: Sequence[Limit] = (),
    x_whole: bool = False,
) -> str:
    """An SVG of `lines` over axes that start at 0, with their names above."""
    highest = max([y for line in lines for _, y in line.points] + [each.value for each in limits])
    last = max(x for line in lines for x, _ in line.points)
    y_ticks = ticks(highest * 1.04)
    x_ticks = [x for x in ticks(last, 10) if x <= last]
    x_end, y_end = last or 1.0, y_ticks[-1]
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x: float, y: float) -> str:
        return f"{LEFT + inner_width * x / x_end:.1f},{TOP + inner_height * (1 - y / y_end):.1f}"

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(name)}"'
        f' data-x-end="{x_end}" data-left="{LEFT}" data-width="{inner_width}">'
    ]
    base = TOP + inner_height
    for y in y_ticks:
        at = place(0, y).split(",")[1]
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 8}" y="{at}" dy="4" text-anchor="end">{y:g}</text>'
        )
    for x in x_ticks:
        if x_whole and x != int(x):
            continue
        at = place(x, 0).split(",")[0]
        parts.append(f'<line class="axis" x1="{at}" x2="{at}" y1="{base}" y2="{base + 5}"/>')
        parts.append(
            f'<text class="tick" x="{at}" y="{base + 19}" text-anchor="middle">{x:g}</text>'
        )
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    parts.append(
        f'<text class="title" x="{LEFT + inner_width / 2}" y="{HEIGHT - 6}"'
        f' text-anchor="middle">{html.escape(x_title)}</text>'
    )
    middle = TOP + inner_height / 2
    parts.append(
        f'<text class="title" x="16" y="{middle}" text-anchor="middle"'
        f' transform="rotate(-90 16 {middle})">{html.escape(y_title)}</text>'
    )
    for line in lines:
        parts.append(draw(line, place))
    for limit in limits:
        right, at = place(x_end, limit.value).split(",")
        parts.append(
            f'<line x1="{LEFT}" x2="{right}" y1="{at}" y2="{at}" stroke="{limit.color}"'
            ' stroke-width="1.5" stroke-dasharray="7 4"/>'
            f'<text class="limit" x="{LEFT + 8}" y="{at}" dy="-6" fill="{limit.color}">'
            f"{html.escape(limit.name)}</text>"
        )
    parts.append(
        f'<line class="pointer" x1="0" x2="0" y1="{TOP}" y2="{base}" visibility="hidden"/></svg>'
    )
    data = [{"name": line.name, "points": line.points, "stairs": line.stairs} for line in lines]
    # "</" would end the script element.
    values = json.dumps(data).replace("</", "<\\/")
    return (
        f'<figure><figcaption>{legend(lines)}<output data-unit="{html.escape(y_title)}"></output>'
        f'</figcaption>{"".join(parts)}'
        f'<script type="application/json">{values}</script></figure>'
    )


def draw(line: Line, place: Callable[[float, float], str]) -> str:
    """The curve itself."""
    commands = []
    for index, (x, y) in enumerate(line.points):
        if index == 0:
            commands.append(f"M{place(x, y)}")
        elif line.stairs:
            across, _ = place(x, y).split(",")
            commands.append(f"H{across}V{place(x, y).split(',')[1]}")
        else:
            commands.append(f"L{place(x, y)}")
    path = "".join(commands)
    dash = ' stroke-dasharray="5 3"' if line.dashed else ""
    svg = f'<path d="{path}" fill="none" stroke="{line.color}" stroke-width="1.6"{dash}/>'
    if line.filled and line.points:
        first, last = line.points[0][0], line.points[-1][0]
        closed = f"{path}L{place(last, 0)}L{place(first, 0)}Z"
        svg = f'<path d="{closed}" fill="{line.color}" fill-opacity="0.13"/>' + svg
    if line.dots:
        for x, y in line.points:
            across, down = place(x, y).split(",")
            svg += f'<circle cx="{across}" cy="{down}" r="3" fill="{line.color}"/>'
    return svg


def legend(lines: Sequence[Line]) -> str:
    entries = []
    for line in lines:
        dash = ' stroke-dasharray="5 3"' if line.dashed else ""
        entries.append(
            f'<span><svg viewBox="0 0 26 10" class="key"><line x1="0" x2="26" y1="5" y2="5"'
            f' stroke="{line.color}" stroke-width="2.4"{dash}/></svg>{html.escape(line.name)}</span>'
        )
    return "".join(entries)


STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; color: #1d2733;
       background: #f5f7f9; margin: 0; }
main { max-width: 1040px; margin: 0 auto; padding: 34px 24px 60px; }
h1 { font-size: 27px; margin: 0 0 4px; letter-spacing: -.01em; }
h2 { font-size: 18px; margin: 0 0 2px; }
p { margin: 0 0 12px; color: #52606d; }
section { background: #fff; border: 1px solid #dfe5ea; border-radius: 10px; padding: 20px 22px;
          margin-top: 20px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
         margin-top: 22px; }
.tile { background: #fff; border: 1px solid #dfe5ea; border-radius: 10px; padding: 12px 16px; }
.tile b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
.tile span { color: #52606d; font-size: 13px; }
figure { margin: 0; }
figcaption { display: flex; flex-wrap: wrap; gap: 4px 22px; font-size: 13px; color: #3a4754;
             min-height: 21px; }
figcaption span { display: inline-flex; align-items: center; gap: 7px; }
figcaption output { margin-left: auto; font-variant-numeric: tabular-nums; color: #1d2733; }
svg { display: block; width: 100%; height: auto; }
svg.key { width: 26px; height: 10px; }
.grid { stroke: #e8ecf0; } .axis { stroke: #8795a1; } .pointer { stroke: #52606d; stroke-width: .8; }
.tick { font-size: 12px; fill: #52606d; } .title { font-size: 12.5px; fill: #3a4754; }
.limit { font-size: 12.5px; font-weight: 600; paint-order: stroke; stroke: #fff; stroke-width: 4px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 6px 10px 6px 0; border-top: 1px solid #e8ecf0; vertical-align: top;
         overflow-wrap: anywhere; }
td:nth-child(2) { white-space: nowrap; }
thead th { border-top: 0; color: #52606d; font-weight: 600; }
.ok { color: #1b7f3b; font-weight: 600; } .failed { color: #c62828; font-weight: 600; }
.missed { color: #a15c00; font-weight: 600; }
"""

SCRIPT = """
for (const figure of document.querySelectorAll("figure")) {
  const svg = figure.querySelector("svg[role=img]");
  const lines = JSON.parse(figure.querySelector("script").textContent);
  const pointer = figure.querySelector(".pointer");
  const output = figure.querySelector("output");
  const unit = output.dataset.unit.split(", ").pop();
  const { xEnd, left, width } = svg.dataset;
  svg.addEventListener("mousemove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    const x = (at - left) / width * xEnd;
    if (x < 0 || x > xEnd * 1.001) return;
    pointer.setAttribute("x1", at); pointer.setAttribute("x2", at);
    pointer.setAttribute("visibility", "visible");
    output.textContent = lines.map(({ name, points, stairs }) => {
      let low = 0, high = points.length;          // points[low][0] <= x < points[high][0]
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (points[middle][0] <= x) low = middle; else high = middle;
      }
      if (!stairs && high < points.length && points[high][0] - x < x - points[low][0]) low = high;
      return `${name}: ${points[low][1].toPrecision(4)} ${unit}`;
    }).join("   ");
  });
  svg.addEventListener("mouseleave", () => {
    pointer.setAttribute("visibility", "hidden"); output.textContent = "";
  });
}
"""


def page(title: str, lead: str, tiles: Sequence[tuple[str, str]], sections: Sequence[str]) -> str:
    """The whole document."""
    boxes = "".join(
        f'<div class="tile"><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>'
        for name, value in tiles
    )
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body><main>"
        f"<h1>{html.escape(title)}</h1><p>{html.escape(lead)}</p>"
        f'<div class="tiles">{boxes}</div>{"".join(sections)}'
        f"</main><script>{SCRIPT}</script></body></html>\n"
    )


def section(title: str, text: str, body: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2><p>{html.escape(text)}</p>{body}</section>"


def over_time(points: Sequence[tuple[int, int]], unit_bytes: float) -> list[Point]:
    """A thinned timeline in seconds and units."""
    return [(ns / 1e9, size / unit_bytes) for ns, size in thin(points)]


def check_table(checks: Sequence[Check]) -> str:
    rows = []
    for check in checks:
        mark = "ok" if check.ok else ("failed" if check.must else "missed")
        cells = "".join(
            f"<td>{html.escape(cell)}</td>" for cell in (check.name, check.had, check.wanted)
        )
        rows.append(f'<tr><td class="{mark}">{mark}</td>{cells}</tr>')
    return (
        "<table><thead><tr><th></th><th>claim</th><th>measured</th><th>wanted</th></tr></thead>"
        f'<tbody>{"".join(rows)}</tbody></table>'
    )


def draw_comparison(comparison: Comparison, beside: ShortRuns, checks: Sequence[Check]) -> str:
    """The demo's page."""
    settings = comparison.settings
    budget = comparison.budget_bytes
    last = comparison.planned.steps[-1]
    record = last["record"]
    alone = [step for step in comparison.unplanned.steps if "timeline" in step][-1]
    measured, forecast = last["timeline"], record["forecast"]["timeline"]
    limit = Limit(f"budget {budget / 1e6:.1f} MB", budget / 1e9)
    whole = chart(
        "Memory over one step, unplanned and planned",
        [
            Line("unplanned", over_time(alone["timeline"], 1e9), "#8795a1", filled=True),
            Line("planned, measured", over_time(measured, 1e9), "#1565c0", filled=True),
        ],
        "time since the step began, s",
        "held by tensors, GB",
        [limit],
    )
    floor = comparison.forecast["floor_bytes"]
    near = chart(
        "Memory over one planned step, forecast and measured",
        [
            Line("measured", over_time(measured, 1e6), "#1565c0", filled=True),
            Line("forecast", over_time(forecast, 1e6), "#ef6c00", dashed=True),
        ],
        "time since the step began, s",
        "on the device, MB",
        [
            Limit(limit.name, budget / 1e6),
            Limit(f"floor {floor / 1e6:.1f} MB", floor / 1e6, "#6b7785"),
        ],
    )
    runs = [
        ("planned", comparison.planned, "#1565c0"),
        ("unplanned, default malloc", comparison.control, "#8795a1"),
        ("unplanned, tuned malloc", comparison.unplanned, "#5b8c5a"),
    ]
    lines = [
        Line(
            name,
            [(float(i + 1), step["step_s"]) for i, step in enumerate(run.steps)],
            color,
            stairs=False,
            dots=True,
        )
        for name, run, color in runs
    ]
    forecasts = [
        (float(i + 1), step["record"]["forecast"]["step_s"])
        for i, step in enumerate(comparison.planned.steps)
    ]
    lines.append(Line("planned, forecast", forecasts, "#ef6c00", dashed=True, stairs=False))
    times = chart("Time of each step", lines, "step", "time, s", x_whole=True)

    moved = sum(record["moved"].values())
    share = comparison.eager_peak_bytes / budget
    equal = all(check.ok for check in checks if check.must)
    tiles = [
        ("unplanned peak", f"{comparison.eager_peak_bytes / 1e6:,.0f} MB"),
        (
            f"planned peak, budget {budget / 1e6:.1f} MB",
            f"{comparison.measured_peak_bytes / 1e6:,.1f} MB",
        ),
        ("planned / unplanned time", f"{comparison.ratio:.3f}"),
        (
            "of the bound on time",
            f"{percent_of_bound(record['forecast'], comparison.planned_step_s):.0f} %",
        ),
        ("moved in a step", f"{moved / 1e9:.2f} GB"),
        ("checks", "all hold" if equal else "FAILED"),
    ]
    lead = (
        f"{settings.model}, {comparison.unplanned.built['parameters'] / 1e6:.2f} M parameters, batch "
        f"{comparison.unplanned.built['input']}, {settings.steps} steps on "
        f"{comparison.unplanned.built['threads']} CPU threads: the same numbers, in "
        f"1/{share:.3g} of the memory."
    )
    return page(
        "Trained inside a byte budget",
        lead,
        tiles,
        [
            section(
                "One training step, unplanned and planned",
                "Bytes that tensors hold, counted by an allocator hook in each process.",
                whole,
            ),
            section(
                "Inside the budget",
                "The planned step alone: what was forecast before it ran, and what was measured.",
                near,
            ),
            section(
                "Time of each step",
                "Three processes take turns; medians are over the steps from the third on.",
                times,
            ),
            section(
                "What was checked", "Measured on this machine, in this run.", check_table(checks)
            ),
        ],
    )


def write_comparison(
    path: Path, comparison: Comparison, beside: ShortRuns, checks: Sequence[Check]
) -> None:
    write_file(path, draw_comparison(comparison, beside, checks))
