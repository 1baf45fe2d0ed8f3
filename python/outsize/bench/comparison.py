"""Planned against unplanned: three processes train the same model, one step each in turn.

`unplanned` runs under a malloc that gives nothing back, and is the reference; `control` repeats its first
steps under default malloc; `planned` is decorated with `outsize.step`. While one steps the
others wait for a line on a pipe. The first two steps of each run alone: the reference's show the
peak that the budget is a part of.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from .digests import first_difference
from .limits import build_allocator
from .models import WANTS_TEXT
from .process import Fields, Worker
from .text import tokens_file

PYTHON_FOLDER = Path(__file__).resolve().parents[2]
BUILD_FOLDER = PYTHON_FOLDER.parent / "build"
UNPLANNED = [sys.executable, str(Path(__file__).with_name("unplanned.py"))]
PLANNED = [sys.executable, "-m", "outsize.bench.planned"]
TUNED_MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000"}
STEPS_ALONE = 2
# At most: under default malloc, which is the slower one wherever tensors are large.
CONTROL_STEPS = 5
CHECKED_EARLY = 2  # the reference's state after this step is kept for short runs to be held against
CONTROL_LIMIT = 1.02  # of the peak: the control must live with this much


@dataclass(frozen=True)
class Settings:
    """What is compared. `budget_of` gives the budget from the unplanned peak, both in bytes."""

    model: str
    steps: int
    budget_of: Callable[[int], int]
    options: Fields = field(default_factory=dict)  # for outsize.step: host, disk, planner
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    seed: int = 0
    folder: Path = BUILD_FOLDER / "bench"
    planned_command: Sequence[str] = tuple(PLANNED)
    ratio_must_hold: bool = False  # or the run fails; otherwise it is only said

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps: wanted at least 1, had {self.steps}")

    @property
    def early_steps(self) -> int:
        """How many steps a short run does."""
        return min(CHECKED_EARLY, self.steps)

    @property
    def control_steps(self) -> int:
        return min(CONTROL_STEPS, self.steps)


@dataclass
class Run:
    """One process's training: what it answered."""

    name: str
    built: Fields = field(default_factory=dict)
    steps: list[Fields] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    digests_after: dict[int, dict[str, str]] = field(default_factory=dict)  # that many steps
    ended: Fields = field(default_factory=dict)

    @property
    def losses(self) -> list[str]:
        return [step["loss"] for step in self.steps]

    def cut(self, count: int) -> Run:
        """Its first `count` steps, as a run of its own."""
        return Run(self.name, steps=self.steps[:count], digests=self.digests_after[count])

    def median_s(self, first: int, key: str = "step_s") -> float:
        return statistics.median(float(step[key]) for step in self.steps[first:])


@dataclass
class Comparison:
    """All that a comparison found; times in seconds, sizes in bytes."""

    settings: Settings
    unplanned: Run = field(default_factory=lambda: Run("unplanned"))
    control: Run = field(default_factory=lambda: Run("unplanned, default malloc"))
    planned: Run = field(default_factory=lambda: Run("planned"))
    budget_bytes: int = 0
    first_forecast: Fields = field(default_factory=dict)  # as printed before step 1
    prepare_s: float = 0.0
    captures_prepared: int = 0
    # The planned process's memory after each capture and plan, by the index of the step it came before.
    after_plan: dict[int, dict[str, int]] = field(default_factory=dict)
    samples: list[list[dict[str, int]]] = field(default_factory=list)  # the same, within each step
    closed_digests: dict[str, str] = field(default_factory=dict)

    @property
    def first_interleaved(self) -> int:
        """Index of the first step that counts for the medians."""
        return min(STEPS_ALONE, self.settings.steps - 1)

    @property
    def eager_peak_bytes(self) -> int:
        return max(int(step["peak_bytes"]) for step in self.unplanned.steps)

    @property
    def eager_step_s(self) -> float:
        """The faster of the two unplanned runs."""
        first = self.first_interleaved
        return min(self.unplanned.median_s(first), self.control.median_s(first))

    @property
    def planned_step_s(self) -> float:
        return self.planned.median_s(self.first_interleaved)

    @property
    def ratio(self) -> float:
        return self.planned_step_s / self.eager_step_s

    @property
    def forecast(self) -> Fields:
        """The steady step's as it was for the first of them, the second step: no later one counts."""
        steady = self.planned.steps[min(1, self.settings.steps - 1)]["record"]["forecast"]
        assert isinstance(steady, dict)
        return steady

    @property
    def control_difference(self) -> str | None:
        """Between the two unplanned runs, over the steps of the shorter one."""
        return same_run(self.unplanned.cut(len(self.control.steps)), self.control)

    @property
    def measured_peak_bytes(self) -> int:
        return max(int(step["record"]["peak_bytes"]) for step in self.planned.steps)

    @property
    def predicted_peak_bytes(self) -> int:
        return max(int(step["record"]["forecast"]["peak_bytes"]) for step in self.planned.steps)

    @property
    def first_plan_step_s(self) -> float:
        """The steps that the first plan is of: the median of those that count, where there are some."""
        steps = self.planned.steps
        own = [float(s["step_s"]) for s in steps if s["captures"] == self.captures_prepared]
        return statistics.median(own[self.first_interleaved :] or own)

    def anonymous_growth(self) -> int:
        """Most anonymous bytes the planned process had, in any step, over what it had once that step's plan was made."""
        return self._growth("anonymous", self.after_plan)

    def shared_growth(self) -> int:
        """Most shared bytes (the tiers' memories) the planned process had in any step, over what it had once built."""
        return self._growth("shared", {0: self.planned.built["memory"]})

    def _growth(self, kind: str, bases: dict[int, dict[str, int]]) -> int:
        """Most bytes of a kind within and after any step, over the latest of `bases`, by step, up to it."""
        most, base = 0, 0
        for index, step in enumerate(self.planned.steps):
            base = bases[index][kind] if index in bases else base
            most = max([most, *(m[kind] - base for m in (*self.samples[index], step["memory"]))])
        return most

    @property
    def host_bytes(self) -> int:
        """The most that any of its plans has on the host."""
        return max(int(step["record"]["forecast"]["host_bytes"]) for step in self.planned.steps)


def same_run(wanted: Run, had: Run) -> str | None:
    """The first loss, generator or piece of state in which two runs differ; None where all is equal."""
    for index, (one, other) in enumerate(zip(wanted.steps, had.steps, strict=True), start=1):
        if one["loss"] != other["loss"]:
            losses = [float.fromhex(step["loss"]) for step in (one, other)]
            return f"the loss of step {index}: {losses[0]!r} and {losses[1]!r}"
        difference = first_difference(one["generators"], other["generators"])
        if difference:
            return f"after step {index}, {difference}"
    difference = first_difference(wanted.digests, had.digests)
    return f"after the last step, {difference}" if difference else None


class Listener:
    """Is told how a comparison goes on. This one is silent."""

    def note(self, text: str) -> None:
        """Something long begins."""

    def forecast(self, comparison: Comparison) -> None:
        """The first step is planned, and has not run."""

    def stepped(self, comparison: Comparison, index: int) -> None:
        """The planned process has done step `index`; the unplanned ones have, or are about to."""


def environment(threads: int, tuned_malloc: bool = False) -> dict[str, str]:
    """Of a worker: waiting threads sleep, malloc is as wanted, nothing is fetched from anywhere."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    variables["OMP_WAIT_POLICY"] = "passive"
    variables["OMP_NUM_THREADS"] = str(threads)
    variables["TOKENIZERS_PARALLELISM"] = "false"
    variables["HF_HUB_OFFLINE"] = "1"
    folders = [str(PYTHON_FOLDER), str(BUILD_FOLDER / "python"), variables.get("PYTHONPATH", "")]
    variables["PYTHONPATH"] = os.pathsep.join(folder for folder in folders if folder)
    if tuned_malloc:
        variables |= TUNED_MALLOC
    return variables


class Workers:
    """Starts workers for one comparison's settings; several threads may."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._started: list[Worker] = []
        self._allocator = build_allocator(settings.folder)
        wants_text = settings.model in WANTS_TEXT
        self._tokens = str(tokens_file(settings.folder)) if wants_text else None

    def start(self, name: str, command: Sequence[str], tuned_malloc: bool = False) -> Worker:
        log = self.settings.folder / f"{name}.log"
        variables = environment(self.settings.threads, tuned_malloc)
        worker = Worker(name, list(command), variables, log)
        self._started.append(worker)
        return worker

    def stop_all(self) -> None:
        """Ends every worker; may be called from another thread than the one that waits for one."""
        for worker in self._started:
            worker.kill()

    def send_build(self, worker: Worker) -> None:
        worker.send(
            "build",
            model=self.settings.model,
            seed=self.settings.seed,
            steps=self.settings.steps,
            threads=self.settings.threads,
            tokens=self._tokens,
            allocator=str(self._allocator),
        )


def step(worker: Worker, run: Run, timeline: bool = False, sample: bool = False) -> None:
    run.steps.append(worker.request("step", timeline=timeline, sample=sample))


def compare(workers: Workers, listener: Listener) -> Comparison:
    """Trains in three processes in turn. Raises WorkerError where one of them can't."""
    settings = workers.settings
    result = Comparison(settings)
    with ExitStack() as stack:
        listener.note("starting three processes")
        planned = stack.enter_context(workers.start("planned", settings.planned_command))
        unplanned = stack.enter_context(workers.start("unplanned", UNPLANNED, tuned_malloc=True))
        control = stack.enter_context(workers.start("control", UNPLANNED))
        planned.listen = listener.note
        pairs = [
            (planned, result.planned),
            (unplanned, result.unplanned),
            (control, result.control),
        ]
        for worker, _ in pairs:
            workers.send_build(worker)
        for worker, run in pairs:
            run.built = worker.receive()

        # Whether the options are ones that step() takes is said before minutes of work.
        if any(settings.options.get(name) for name in ("disk", "planner")):
            planned.request("check", budget=1 << 40, **settings.options)

        listener.note("unplanned: finding its peak")
        alone = min(STEPS_ALONE, settings.steps)
        for index in range(alone):
            step(unplanned, result.unplanned, timeline=index == alone - 1)
        result.budget_bytes = settings.budget_of(result.eager_peak_bytes)

        listener.note("planned: capture and plan")
        prepared = planned.request("prepare", budget=result.budget_bytes, **settings.options)
        result.first_forecast = prepared["forecast"]
        result.prepare_s = prepared["seconds"]
        result.captures_prepared = prepared["captures"]
        result.after_plan[0] = prepared["memory"]
        listener.forecast(result)

        control.request("limit_allocator", bytes=int(CONTROL_LIMIT * result.eager_peak_bytes))
        for _ in range(alone):
            step(control, result.control)
        checked = {settings.early_steps, settings.control_steps}
        for index in range(settings.steps):
            if index >= alone:
                step(unplanned, result.unplanned)
            if index + 1 in checked:
                digests = unplanned.request("digest")["digests"]
                result.unplanned.digests_after[index + 1] = digests
            # Once there is optimizer state the step has a plan of its own, made here and not within it.
            if 0 < index < alone:
                result.after_plan[index] = planned.request("plan_next")["memory"]
            planned.samples = []
            last = index + 1 == settings.steps
            step(planned, result.planned, timeline=last, sample=True)
            result.samples.append(planned.samples)
            if alone <= index < settings.control_steps:
                step(control, result.control)
            listener.stepped(result, index)

        listener.note("comparing all state")
        for worker, run in pairs:
            run.digests = worker.request("digest")["digests"]
        planned.request("close")
        result.closed_digests = planned.request("digest")["digests"]
        for worker, run in pairs:
            run.ended = worker.request("end")
    return result
