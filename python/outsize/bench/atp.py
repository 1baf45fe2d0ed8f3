"""Throughput against batch: a CNN, a transformer, an LSTM and a U-Net on two GPU presets, simulated.

For each, batches from the largest that `keep` can hold to 8 times that. Samples per second of each
planner from the literature, of `outsize`, of the throughput model, and the bound that no plan beats.
The paper's bar: 1.14 to 1.49 times the best earlier system, sizes up to 9.2 times the memory. Beside
its best earlier peer stands `outsize` at its best batch; it must not be below `atp`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from .commands import BAD_USE, DONE, INFEASIBLE, Parser, version, write_json
from .instances import ask, command_path
from .nets import NETS

GPUS = ("v100-16gb-pcie3", "rtx4090-24gb-pcie4")
EARLIER = ("keep", "sqrt-n", "vdnn", "superneurons", "capuchin", "home")
FACTORS = (1, 2, 4, 8)
PAPER = "1.14 to 1.49 times the best earlier one (TACO'25)"


def known_planners() -> list[str]:
    """Those of the literature that the command has, then atp and outsize."""
    import torch  # noqa: F401  (the core is linked against it)

    import outsize_core

    names = outsize_core.planner_names()
    return [name for name in (*EARLIER, "atp", "outsize") if name in names]


def write_net(folder: Path, net: str, batch: int, machine: dict[str, Any]) -> Path:
    path = folder / f"{net}-{batch}.json"
    path.write_text(json.dumps(NETS[net](batch).file(machine)), encoding="utf-8")
    return path


def peak_of(folder: Path, net: str, batch: int, machine: dict[str, Any]) -> int:
    path = write_net(folder, net, batch, machine)
    words = ("--machine", machine["name"], "--device", machine["device_bytes"], "--work", 0)
    row = ask("compare", path, "--planners", "keep", *words)
    return int(row["peak_program_order"])


def largest_kept(folder: Path, net: str, machine: dict[str, Any]) -> int:
    """The largest batch whose peak fits, to one part in 50."""
    fits, too_large = 1, 2
    while peak_of(folder, net, too_large, machine) <= machine["device_bytes"]:
        fits, too_large = too_large, 2 * too_large
    while too_large - fits > max(1, fits // 50):
        middle = (fits + too_large) // 2
        if peak_of(folder, net, middle, machine) <= machine["device_bytes"]:
            fits = middle
        else:
            too_large = middle
    return fits


def curves(
    folder: Path, net: str, gpu: str, planners: list[str], limits: list[object]
) -> list[dict[str, Any]]:
    """Per batch: samples per second by planner (None: no plan), of the model, and the bound."""
    machine = ask("machine", "show", gpu)
    kept = largest_kept(folder, net, machine)
    batches = [kept * factor for factor in FACTORS]
    paths = [write_net(folder, net, batch, machine) for batch in batches]
    tuned = ask(
        "tune", *paths, "--batches", ",".join(map(str, batches)), "--machine", gpu, *limits
    )  # fmt: skip
    others = [name for name in planners if name != "atp"]
    found = []
    for batch, path, row in zip(batches, paths, tuned["rows"], strict=True):
        compared = ask("compare", path, "--machine", gpu, "--planners", ",".join(others), *limits)
        rates = {
            one["planner"]: batch * 1e9 / one["step_ns"] if one["feasible"] else None
            for one in compared["rows"]
        }
        rates["atp"] = row["samples_per_s"]
        found.append(
            {
                "net": net,
                "machine": gpu,
                "batch": batch,
                "peak_of_memory": compared["peak_program_order"] / machine["device_bytes"],
                "samples_per_s": rates,
                "model_samples_per_s": row["model"].get("samples_per_s"),
                "bound_samples_per_s": batch * 1e9 / row["compute_ns"],
                "model_peak": tuned["peak_samples_per_s"],
                "model_peak_batch": tuned["peak_batch"],
            }
        )
    return found


def best(found: list[dict[str, Any]], planner: str) -> float | None:
    rates = [point["samples_per_s"].get(planner) for point in found]
    return max((rate for rate in rates if rate is not None), default=None)


def rows_of(found: list[dict[str, Any]], planners: list[str]) -> list[dict[str, Any]]:
    """Against the best earlier planner, and against atp, each at its own best batch."""
    ours = best(found, "outsize")
    earlier = {name: best(found, name) or 0.0 for name in planners if name in EARLIER}
    name = max(earlier, key=lambda one: earlier[one])
    at_each = all(
        (point["samples_per_s"]["outsize"] or 0) >= (point["samples_per_s"]["atp"] or 0)
        for point in found
    )
    case = f"{found[0]['net']} {found[0]['machine']}"
    shared = {
        "outsize": ours,
        "better": "higher",
        "bound": max(point["bound_samples_per_s"] for point in found),
        "peer_source": "measured here",
        "atp": best(found, "atp"),
        "model_peak": found[0]["model_peak"],
        "largest_of_memory": max(
            (p["peak_of_memory"] for p in found if p["samples_per_s"]["outsize"]), default=None
        ),
    }
    return [
        {
            "case": f"{case}, best earlier", "peer": name, "peer_value": earlier[name], **shared,
            "ok": (ours or 0) >= earlier[name],
        },
        {
            "case": f"{case}, atp", "peer": "atp", "peer_value": best(found, "atp"), **shared,
            "ok": at_each,
        },
    ]  # fmt: skip


def table(found: list[dict[str, Any]], planners: list[str]) -> str:
    def cell(value: float | None) -> str:
        return "-" if value is None else f"{value:.4g}"

    names = [*planners, "model", "bound"]
    lines = [
        f"{found[0]['net']} on {found[0]['machine']}; the model's peak is "
        f"{cell(found[0]['model_peak'])} samples/s at a batch of {found[0]['model_peak_batch']}",
        f"{'batch':>7} {'peak/mem':>8} " + " ".join(f"{name:>12}" for name in names),
    ]
    for point in found:
        rates = [point["samples_per_s"].get(name) for name in planners]
        rates += [point["model_samples_per_s"], point["bound_samples_per_s"]]
        lines.append(
            f"{point['batch']:7d} {point['peak_of_memory']:8.2f} "
            + " ".join(f"{cell(rate):>12}" for rate in rates)
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = Parser("python -m outsize.bench atp", __doc__ or "")
    parser.add_argument("--only", metavar="WORD", help="cases with this in their name: cnn, v100")
    parser.add_argument("--seconds", type=float, help="of each plan's search; 5 by default")
    parser.add_argument("--work", type=int, help="in place of seconds: units of work")
    parser.add_argument("--json", metavar="FILE", help="rows, and a curve's points; - is stdout")
    options = parser.parse_args(arguments)
    cases = [
        (net, gpu) for gpu in GPUS for net in NETS if (options.only or "") in f"{net} {gpu}"
    ]  # fmt: skip
    if not cases:
        parser.error(f"no case has {options.only!r} in it: {', '.join(NETS)}; {', '.join(GPUS)}")
    if not command_path().is_file():
        print(f"no {command_path()}: run make build", file=sys.stderr)
        return BAD_USE
    limits: list[object] = ["--seconds", options.seconds if options.seconds is not None else 5]
    if options.work is not None:
        limits = ["--work", options.work]
    planners = known_planners()
    rows: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    talk = sys.stderr if options.json == "-" else sys.stdout
    for net, gpu in cases:
        with tempfile.TemporaryDirectory() as folder:
            found = curves(Path(folder), net, gpu, planners, limits)
        points += found
        rows += rows_of(found, planners)
        print(table(found, planners), end="\n\n", file=talk, flush=True)
    for row in rows:
        ratio = (row["outsize"] or 0) / row["peer_value"] if row["peer_value"] else float("nan")
        print(
            f"{'ok ' if row['ok'] else 'NOT'} {row['case']}: outsize is {ratio:.3f} times {row['peer']}",
            file=talk,
        )
    print(f"wanted by the paper of atp: {PAPER}", file=talk)
    write_json(options.json, {"outsize": version(), "rows": rows, "points": points})
    return DONE if all(row["ok"] for row in rows) else INFEASIBLE
