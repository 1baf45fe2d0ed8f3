"""nvshare's published table, and the job model that is fitted on a few of its rows.

A job works on the host, then on the device in equal rounds of a burst and a short gap. Free are: the
device phase's length, per column, from TQ 1000; the rate at which pages are exchanged, from TQ 30 of
the two columns whose jobs do not fit together; the burst's part of a round, from KubeShare's first
row (both jobs at once, nothing exchanged); the round's length, from the last row without a scheduler
(each burst exchanges all pages). All other rows are predictions.
"""

from __future__ import annotations

import copy
import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .instances import ask


@dataclass(frozen=True)
class Column:
    """Seconds until both of two instances have ended."""

    case: str
    solo_s: int
    by_quantum: dict[int, int]  # of the quantum in seconds
    scheduler_off: int
    kubeshare: int | None = None


def _column(
    case: str, solo_s: int, turns: list[int], scheduler_off: int, kubeshare: int | None = None
) -> Column:
    quanta = (1000, 300, 100, 60, 30, 15, 10, 5)
    return Column(case, solo_s, dict(zip(quanta, turns, strict=True)), scheduler_off, kubeshare)


SMALL_50 = _column(
    "nvshare-small-50", 1332, [2053, 2010, 2010, 2020, 2017, 1983, 2009, 1982], 1772, 1724
)
SMALL_90 = _column(
    "nvshare-small-90", 711, [1361, 1354, 1351, 1348, 1366, 1341, 1360, 1334], 1128, 1078
)
BIG_50 = _column("nvshare-big-50", 1385, [2043, 2085, 2100, 2122, 2170, 2305, 2465, 3496], 11757)
BIG_90 = _column("nvshare-big-90", 724, [1380, 1418, 1435, 1468, 1521, 1668, 1821, 2788], 11434)
COLUMNS = (SMALL_50, SMALL_90, BIG_50, BIG_90)
FITTED_ON = {(column.case, "TQ 1000") for column in COLUMNS} | {
    (BIG_50.case, "TQ 30"),
    (BIG_90.case, "TQ 30"),
    (SMALL_50.case, "KubeShare"),
    (BIG_90.case, "scheduler off"),
}

SECOND = 1_000_000_000


@dataclass
class Model:
    """What is fitted, in integers as `outsize share case` has them."""

    device_phase_s: dict[str, int]
    round_ns: int = 300_000_000
    busy_permille: int = 800
    exchange_bytes_per_s: int = 12_000_000_000


class Simulation:
    """Makespans of a column's jobs under a model."""

    def __init__(self) -> None:
        self._cases = {column.case: ask("share", "case", column.case) for column in COLUMNS}

    def makespan_s(self, column: Column, model: Model, *words: object) -> float:
        jobs = copy.deepcopy(self._cases[column.case])
        del jobs["outsize"]
        device = jobs["device"]
        device["swap_in_bytes_per_s"] = device["swap_out_bytes_per_s"] = model.exchange_bytes_per_s
        phase_s = model.device_phase_s[column.case]
        burst_ns = model.round_ns * model.busy_permille // 1000
        for job in jobs["jobs"]:
            job["host_first_ns"] = (column.solo_s - phase_s) * SECOND
            job["rounds"] = phase_s * SECOND // model.round_ns
            job["compute_ns"] = [burst_ns]
            job["host_ns"] = model.round_ns - burst_ns
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "jobs.json"
            file.write_text(json.dumps(jobs))
            rows = ask("share", "simulate", file, *words)["rows"]
        return float(rows[0]["makespan_s"])

    def turns_s(self, column: Column, model: Model, quantum_s: int) -> float:
        return self.makespan_s(column, model, "--policy", "round-robin", "--quantum", quantum_s)

    def both_s(self, column: Column, model: Model) -> float:
        return self.makespan_s(column, model, "--policy", "lru")


def _least(low: int, high: int, step: int, cost: Any) -> int:
    """The multiple of `step` in [low, high] with the least cost, which falls and then rises."""
    while high - low > 2 * step:
        third = max(step, (high - low) // 3 // step * step)
        left, right = low + third, high - third
        if left >= right:
            break
        if cost(left) <= cost(right):
            high = right
        else:
            low = left
    return int(min(range(low, high + 1, step), key=cost))


def fit() -> dict[str, int]:
    """Each free number in turn, three times over: they hardly depend on one another."""
    simulation = Simulation()
    model = Model({column.case: column.by_quantum[1000] - column.solo_s for column in COLUMNS})

    def with_(**changed: Any) -> Model:
        return replace(model, **changed)

    def turns_error(rate: int) -> float:
        tried = with_(exchange_bytes_per_s=rate)
        errors = [
            simulation.turns_s(column, tried, 30) / column.by_quantum[30] - 1
            for column in (BIG_50, BIG_90)
        ]
        return sum(error * error for error in errors)

    def busy_error(busy: int) -> float:
        assert SMALL_50.kubeshare is not None
        return abs(simulation.both_s(SMALL_50, with_(busy_permille=busy)) - SMALL_50.kubeshare)

    def round_error(round_ns: int) -> float:
        return abs(simulation.both_s(BIG_90, with_(round_ns=round_ns)) - BIG_90.scheduler_off)

    for _ in range(3):
        for column in COLUMNS:
            missing = column.by_quantum[1000] - simulation.turns_s(column, model, 1000)
            model.device_phase_s[column.case] += round(missing)
        model.exchange_bytes_per_s = _least(4_000_000_000, 20_000_000_000, 100_000_000, turns_error)
        model.busy_permille = _least(500, 1000, 5, busy_error)
        model.round_ns = _least(100_000_000, 900_000_000, 2_000_000, round_error)
    return {
        **{f"{case} device phase, s": phase for case, phase in model.device_phase_s.items()},
        "round, ns": model.round_ns,
        "busy, permille": model.busy_permille,
        "exchange, bytes/s": model.exchange_bytes_per_s,
    }
