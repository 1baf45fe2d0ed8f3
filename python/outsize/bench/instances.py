"""What benches of the command share: the program, the public instances, rows of Outsize beside a peer."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


def command_path() -> Path:
    """The `outsize` program: OUTSIZE_COMMAND, else build/bin/outsize."""
    return Path(os.environ.get("OUTSIZE_COMMAND", ROOT / "build" / "bin" / "outsize"))


def data_folder() -> Path | None:
    """Where the public instances lie, beside the project or inside it; None where they are absent."""
    folders = (ROOT / "shared" / "data", ROOT.parent / "shared" / "data")
    return next((folder for folder in folders if folder.is_dir()), None)


def ask(*words: object) -> dict[str, Any]:
    """The JSON answer of one call of the program; an infeasible one too.

    Raises RuntimeError where the call was wrong (exit 2) or the program is at fault (exit 3).
    """
    call = [str(command_path()), *map(str, words), "--json"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(call)}: exit {done.returncode}: {done.stdout}{done.stderr}")
    fields: dict[str, Any] = json.loads(done.stdout)
    return fields


@dataclass(frozen=True)
class Row:
    """One measured value beside what a peer reaches, what no plan can beat, and what was asked for."""

    family: str
    case: str
    outsize: float | None  # None: no plan
    peer: str
    peer_value: float | None
    peer_source: str
    better: str  # "higher" or "lower"
    bound: float | None
    wanted: float | None  # None: that there is no plan
    ok: bool
    seconds: float
    first_plan_seconds: float | None

    def fields(self) -> dict[str, Any]:
        return asdict(self)


def cell(value: float | None) -> str:
    """
    >>> cell(0.98765), cell(None)
    ('0.9877', '-')
    """
    return "-" if value is None else f"{value:.4f}"
