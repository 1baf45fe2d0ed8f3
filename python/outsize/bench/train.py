"""Trains one model planned and unplanned, step by step in turn, and says what a budget costs.

A model of your own is a function in a file, --model FILE.py:FUNCTION, that takes no arguments and returns
(model, optimizer, train_step, make_batch): train_step(batch) returns the loss, make_batch(index) the
batch of a step.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

from outsize.budgets import available_host_bytes, format_bytes, parse_bytes

from .commands import DONE, INFEASIBLE, Parser, nearest, status_of, version, write_json
from .comparison import BUILD_FOLDER, Settings, Workers, compare
from .console import Console
from .models import LARGE_MODELS, MODELS
from .picture import write_comparison
from .process import Fields, WorkerError
from .report import all_checks, json_fields
from .short_runs import run_beside

# AdamW in float32: parameters, gradients and two moments, all there while the optimizer runs.
BYTES_A_PARAMETER = 16
PLAIN_RUNS = 2  # at the same time, the reference and its control


def train(settings: Settings, at_floor: bool, json_path: str | None, html_path: str | None) -> int:
    """Runs a comparison and the short runs beside it, shows and writes them; the exit status."""
    begin = time.monotonic()
    console = Console(quiet=json_path == "-")
    try:
        workers = Workers(settings)
        comparison = compare(workers, console)
        console.note("short runs, side by side")
        beside = run_beside(workers, comparison, at_floor)
    except WorkerError as error:
        print(f"outsize.bench: {error}", file=sys.stderr)
        fields = {"kind": error.kinds[0], "message": error.message}
        write_json(json_path, {"outsize": version(), "error": fields})
        return status_of(error)
    checks = all_checks(comparison, beside)
    console.conclude(comparison, checks)
    if html_path:
        write_comparison(Path(html_path), comparison, beside, checks)
    seconds = time.monotonic() - begin
    write_json(json_path, json_fields(comparison, beside, checks, version(), seconds))
    written = [path for path in (json_path, html_path) if path and path != "-"]
    console.say()
    console.say(f"{seconds:.0f} s in all{'; written: ' if written else ''}{', '.join(written)}")
    return DONE if all(check.ok for check in checks if check.must) else INFEASIBLE


def make_parser() -> Parser:
    parser = Parser("python -m outsize.bench train", __doc__ or "")
    models = f"{', '.join(MODELS)} or FILE.py:FUNCTION"
    parser.add_argument("--model", required=True, metavar="NAME", help=models)
    parser.add_argument(
        "--budget",
        required=True,
        metavar="B",
        help="6GiB, 6GB, 1048576, or of the peak: 25%%, 1/16",
    )
    parser.add_argument("--tiers", choices=("host", "disk"), default="host", help="%(default)s")
    parser.add_argument("--host", metavar="B", help="bytes of the host tier (what is free)")
    parser.add_argument("--disk", metavar="FOLDER", help="of the disk tier (build/bench/disk)")
    parser.add_argument("--steps", type=int, default=10, metavar="N", help="%(default)s")
    parser.add_argument("--planner", metavar="P", help="outsize, or one from the literature")
    parser.add_argument(
        "--link",
        metavar="MACHINE",
        help="slow host copies to its links, as this CPU computes: v100-16gb-pcie3, a file",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads (all)")
    parser.add_argument("--seed", type=int, default=0, help="of the model's weights (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="`-` is stdout")
    parser.add_argument("--html", metavar="FILE", help="also draw the picture")
    return parser


def budget_bytes(text: str, peak_bytes: int) -> int:
    """
    >>> budget_bytes("1/16", 1600), budget_bytes("25%", 1600), budget_bytes("2kB", 1600)
    (100, 400, 2000)
    """
    share = re.fullmatch(r"\s*([0-9]+)\s*/\s*([0-9]+)\s*", text)
    if share is None:
        return parse_bytes(text, peak_bytes)
    part, whole = int(share[1]), int(share[2])
    if not 0 < part <= whole:
        raise ValueError(f"wanted a share of the peak such as 1/16, at most 1/1, had {text!r}")
    return peak_bytes * part // whole


def too_large(model: str, available_bytes: int) -> str | None:
    """Why `model` can't be compared with plain runs in that much memory; None if it may."""
    least = LARGE_MODELS.get(model, 0) * BYTES_A_PARAMETER * PLAIN_RUNS
    if least <= available_bytes:
        return None
    return (
        f"{model}: its {PLAIN_RUNS} plain runs hold {format_bytes(least)} of parameters, gradients and moments,"
        f" and {format_bytes(available_bytes)} is available; take a machine with more memory, or a smaller model"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.model not in MODELS and ".py:" not in options.model:
        known = ", ".join(MODELS)
        hint = nearest(options.model, list(MODELS))
        parser.error(f"--model: {options.model!r} is not one of {known} or FILE.py:FUNCTION{hint}")
    if options.steps < 1:
        parser.error(f"--steps: wanted at least 1, had {options.steps}")
    if options.disk is not None and options.tiers != "disk":
        parser.error("--disk: only with --tiers disk")
    try:
        budget_bytes(options.budget, 1 << 40)
    except Exception as error:  # its own message says all
        parser.error(f"--budget: {error}")
    if options.link is not None and options.tiers == "disk":
        parser.error("--link: only with --tiers host: it slows the copies to and from the host")
    if options.threads is not None and options.threads < 1:
        parser.error(f"--threads: wanted at least 1, had {options.threads}")
    if why := too_large(options.model, available_host_bytes()):
        parser.error(f"--model: {why}")
    passed_on: Fields = {"host": options.host, "planner": options.planner, "link": options.link}
    if options.tiers == "disk":
        if options.host is not None:
            parser.error("--host: only with --tiers host")
        own = BUILD_FOLDER / "bench" / "disk"
        if options.disk is None:
            own.mkdir(parents=True, exist_ok=True)
        passed_on["disk"] = options.disk or str(own)
    settings = Settings(
        options.model,
        options.steps,
        budget_of=lambda peak: budget_bytes(options.budget, peak),
        options={name: value for name, value in passed_on.items() if value is not None},
        seed=options.seed,
        **({"threads": options.threads} if options.threads else {}),
    )
    return train(settings, False, options.json, options.html)
