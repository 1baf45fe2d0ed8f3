"""What benches of the command share: the program, the public instances, rows of Outsize beside a peer."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from .commands import BAD_USE, Parser

ROOT = Path(__file__).resolve().parents[3]


def command_path() -> Path:
    """The `outsize` program: OUTSIZE_COMMAND, else build/bin/outsize."""
    return Path(os.environ.get("OUTSIZE_COMMAND", ROOT / "build" / "bin" / "outsize"))


def data_folder() -> Path | None:
    """Where the public instances lie, beside the project or inside it; None where they are absent."""
    folders = (ROOT / "shared" / "data", ROOT.parent / "shared" / "data")
    return next((folder for folder in folders if folder.is_dir()), None)


def required_data(parser: Parser) -> Path:
    """Where the public instances lie; ends the program (exit 2) where they or the command are absent."""
    folder = data_folder()
    if folder is None or not command_path().exists():
        missing = command_path() if folder else "../shared/data"
        parser.exit(BAD_USE, f"{parser.prog}: error: nothing at {missing}\n")
    return folder


Case = TypeVar("Case")


def chosen(
    parser: Parser, only: str | None, cases: Iterable[Case], name: Callable[[Case], str]
) -> list[Case]:
    """Cases with `only` in their name, all for None; ends the program (exit 2) where there are none."""
    found = [case for case in cases if only is None or only in name(case)]
    if not found:
        parser.exit(BAD_USE, f"{parser.prog}: error: no case has {only!r} in it\n")
    return found


def declare_search(parser: Parser, seconds: float) -> None:
    """The options that `search_words` reads."""
    parser.add_argument(
        "--seconds", type=float, default=seconds,
        help=f"of search per case; {seconds:g} by default",
    )  # fmt: skip
    parser.add_argument("--work", type=int, help="units of work per case instead of seconds")
    parser.add_argument("--seed", type=int, default=1)


def search_words(options: argparse.Namespace) -> list[str]:
    """
    >>> search_words(argparse.Namespace(seconds=2.0, work=None, seed=1))
    ['--seconds', '2.0', '--seed', '1']
    """
    limit = ["--seconds", str(options.seconds)]
    if options.work is not None:
        limit = ["--work", str(options.work)]
    return [*limit, "--seed", str(options.seed)]


def imported(data: Path, trace: str, folder: Path) -> Path:
    """The graph of a public trace, in `folder`; made there the first time."""
    graph = folder / f"{trace}.json"
    if not graph.exists():
        ask("import", "op-trace", data / "trace" / graph.name, "-o", graph)
    return graph


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
