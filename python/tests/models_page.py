"""Writes `docs/models.md` from what the tests of the zoo have measured.

row = Row("bert", "encoder", peak_bytes=486_000, floor_bytes=39_000)
page([row])      # the page's text
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"

_HEAD = """# Models

Written by `python/tests/test_models_zoo.py` (`make test-long`); don't edit it.

Each model is built at a tiny size with random weights and trained three steps with AdamW as PyTorch makes it by default: twice eagerly
(the control), then planned at 60 % of the peak that the step has unplanned (or 15 % over its floor, whichever is more), then at 5 % over its floor, or
the least that the planner says it can do. Returned losses, parameters, gradients, buffers and optimizer state are compared bit for bit
after every step. *floor ÷ peak* is of the step in its steady state; *tightest* is the budget of the last run ÷ peak, where it has been measured.

Planned and equal: {equal} of {all}. Refused before the first op, with the reason: {refused}.

| model | kind | bits | peak (KiB) | floor ÷ peak | tightest ÷ peak |
|---|---|---|---|---|---|
"""


@dataclass
class Row:
    """What one model did. `refused` is the message, or "" where it ran."""

    name: str
    kind: str
    refused: str = ""
    peak_bytes: int = 0
    floor_bytes: int = 0
    tightest_bytes: int = 0


def page(rows: Iterable[Row]) -> str:
    rows = sorted(rows, key=lambda row: (row.kind, row.name))
    refused = [row for row in rows if row.refused]
    text = _HEAD.format(equal=len(rows) - len(refused), all=len(rows), refused=len(refused))
    for row in rows:
        if row.refused:
            text += f"| {row.name} | {row.kind} | refused | | | |\n"
            continue
        peak = row.peak_bytes
        text += (
            f"| {row.name} | {row.kind} | equal | {peak / 1024:.0f} | {row.floor_bytes / peak:.2f} "
            f"| {f'{row.tightest_bytes / peak:.2f}' if row.tightest_bytes else ''} |\n"
        )
    if refused:
        text += "\n## Refused, and why\n\n"
        text += "".join(f"- **{row.name}**: {row.refused}\n" for row in refused)
    return text
