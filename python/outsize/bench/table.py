"""Prints a Markdown table of what demo and train measured, from the JSON files they wrote."""

from __future__ import annotations

import json
from pathlib import Path

from outsize.budgets import format_bytes

from .commands import BAD_USE, DONE, Parser
from .process import Fields

COLUMNS = (
    ("model", "model"),
    ("batch", "input"),
    ("unplanned peak", "eager_peak_bytes"),
    ("budget", "budget_bytes"),
    ("of peak", "share"),
    ("planned peak", "measured_peak_bytes"),
    ("bits", "bits"),
    ("unplanned s", "eager_step_s"),
    ("planned s", "planned_step_s"),
    ("planned / unplanned", "ratio"),
    ("forecast", "forecast"),
    ("of bound", "of_bound"),
    ("moved a step", "moved"),
    ("recomputed ops", "recomputed_ops"),
)


def cell(fields: Fields, name: str) -> str:
    """One value as people read it."""
    if name == "share":
        return f"{fields['budget_bytes'] / fields['eager_peak_bytes']:.1%}"
    if name == "bits":
        return "equal" if fields["bit_equal"] and fields["control_bit_equal"] else "**differ**"
    if name == "forecast":
        return f"{fields['planned_step_s'] / fields['predicted_step_s'] - 1:+.1%}"
    if name == "of_bound":
        return f"{fields['bound_s'] / fields['planned_step_s']:.0%}"
    if name == "moved":
        return format_bytes(sum(fields["moved"].values()))
    value = fields[name]
    if name.endswith("_bytes"):
        return f"{value / 1e6:,.1f} MB"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def table(rows: list[Fields]) -> str:
    """One row a run, in the order given."""
    lines = [
        "| " + " | ".join(title for title, _ in COLUMNS) + " |",
        "|" + " --- |" * len(COLUMNS),
    ]
    for row in rows:
        lines.append("| " + " | ".join(cell(row, name) for _, name in COLUMNS) + " |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = Parser("python -m outsize.bench table", __doc__ or "")
    parser.add_argument("files", nargs="+", metavar="FILE.json")
    rows = []
    for file in parser.parse_args(arguments).files:
        try:
            fields = json.loads(Path(file).read_text())
            rows.append({**fields, "model": fields["model"].rpartition("/")[2]})
        except (OSError, ValueError, KeyError) as error:
            parser.exit(BAD_USE, f"{parser.prog}: error: {file}: {error!r}\n")
    print(table(rows))
    return DONE
