"""Short runs beside a comparison, in which no time is measured: so they may run side by side.

An unplanned run given only the budget's bytes must fail, and given what it needs must pass; a planned
run at a much smaller budget must train to the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from .comparison import UNPLANNED, Comparison, Run, Workers, same_run
from .process import Fields, WorkerError

PROCESS_LIMIT = 1.4  # of the unplanned peak: enough as heap under default malloc
ABOVE_FLOOR = 1.1  # of the floor: the budget of the short planned run
# The floor run recomputes what it can and swaps what it must, so that both ways of making room are used.
FLOOR_PLANNER = "recompute-everything"
LIMITED_STEPS = 2
LIMITED_TIMEOUT_S = 240  # a process near its data limit may hang rather than fail


@dataclass
class Limited:
    """What an unplanned run did within a limit; `message` of its failure, or None where it passed."""

    limit_bytes: int
    message: str | None = None
    losses: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def said(self) -> str:
        return "passed" if self.message is None else f"failed: {self.message}"


@dataclass
class ShortRun:
    """A planned run of a few steps; `difference` is from the reference's first steps, or how it failed."""

    budget_bytes: int
    steps: list[Fields]
    difference: str | None

    @property
    def swapped(self) -> dict[str, int]:
        """Bytes copied in all its steps by the storage's role, measured."""
        return add_up(step["record"]["swapped"] for step in self.steps)

    @property
    def recomputed(self) -> dict[str, int]:
        """Ops run again in all its steps by their name, measured."""
        return add_up(step["record"]["recomputed"] for step in self.steps)

    @property
    def recomputed_ops(self) -> int:
        """How many that are."""
        return sum(self.recomputed.values())

    @property
    def measured_peak_bytes(self) -> int:
        return max((int(step["record"]["peak_bytes"]) for step in self.steps), default=0)


@dataclass
class ShortRuns:
    """The short runs beside one comparison. `floor` is None where none was asked for."""

    allocator_at_budget: Limited  # tensors limited to the budget
    process_at_budget: Limited  # the process's heap limited to the budget for all but parameters
    process_at_peak: Limited  # and to PROCESS_LIMIT times the peak
    floor: ShortRun | None


def add_up(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """
    >>> add_up([{"a": 1, "b": 2}, {"b": 3}])
    {'a': 1, 'b': 5}
    """
    total: dict[str, int] = {}
    for entry in counts:
        for name, count in entry.items():
            total[name] = total.get(name, 0) + count
    return total


def run_limited(
    workers: Workers, name: str, kind: str, limit_of: Callable[[Fields], int]
) -> Limited:
    """Trains unplanned for two steps in a new process, limited as soon as the model is built."""
    begin = time.monotonic()
    with workers.start(name, UNPLANNED) as worker:
        workers.send_build(worker)
        limited = Limited(limit_of(worker.receive()))
        worker.request(f"limit_{kind}", bytes=limited.limit_bytes)
        try:
            for _ in range(LIMITED_STEPS):
                answer = worker.request("step", timeout_s=LIMITED_TIMEOUT_S)
                limited.losses.append(answer["loss"])
        except WorkerError as error:
            limited.message = error.message
    limited.seconds = time.monotonic() - begin
    return limited


def run_planned(workers: Workers, name: str, comparison: Comparison, budget_bytes: int) -> ShortRun:
    """Trains planned for as many steps as the reference's early digest is of."""
    settings = workers.settings
    count = settings.early_steps
    had = Run(name)
    try:
        with workers.start(name, settings.planned_command) as worker:
            workers.send_build(worker)
            had.built = worker.receive()
            options = settings.options | {"budget": budget_bytes, "planner": FLOOR_PLANNER}
            worker.request("prepare", **options)
            for _ in range(count):
                had.steps.append(worker.request("step"))
            had.digests = worker.request("digest")["digests"]
            worker.request("close")
    except WorkerError as error:
        return ShortRun(budget_bytes, had.steps, f"after {len(had.steps)} steps, {error}")
    wanted = comparison.unplanned.cut(count)
    return ShortRun(budget_bytes, had.steps, same_run(wanted, had))


def run_beside(workers: Workers, comparison: Comparison, at_floor: bool) -> ShortRuns:
    """All short runs, side by side."""
    budget, peak = comparison.budget_bytes, comparison.eager_peak_bytes

    def process_limit(tensors: float) -> Callable[[Fields], int]:
        # What it has after the build counts the parameters already.
        return lambda built: built["memory"]["data"] + int(tensors) - int(built["parameter_bytes"])

    with ThreadPoolExecutor(4) as pool:
        floor = None
        if at_floor:
            floor_bytes = int(
                ABOVE_FLOOR
                * max(comparison.forecast["floor_bytes"], comparison.first_forecast["floor_bytes"])
            )
            floor = pool.submit(run_planned, workers, "planned-floor", comparison, floor_bytes)
        allocator = pool.submit(
            run_limited, workers, "allocator-at-budget", "allocator", lambda _: budget
        )
        process = pool.submit(
            run_limited, workers, "process-at-budget", "data", process_limit(budget)
        )
        enough = pool.submit(
            run_limited, workers, "process-at-peak", "data", process_limit(PROCESS_LIMIT * peak)
        )
        try:
            return ShortRuns(
                allocator.result(),
                process.result(),
                enough.result(),
                floor.result() if floor else None,
            )
        except BaseException:  # Ctrl-C too: the pool waits for its threads, and they for workers
            workers.stop_all()
            raise
