"""Runs a `Training` plainly and under `outsize.step`, and compares every bit after every step.

wanted = train(make)                          # eager
compare(wanted, train(make, budget="60%"))    # planned
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from parity import assert_equal, results, same, state_of
from step_models import Training

import outsize

Make = Callable[[], Training]
Between = Callable[[int, Training], None]


@dataclass
class Log:
    """What a run left after each step."""

    returned: list[list[Any]] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    batches: list[tuple[torch.Tensor, ...]] = field(default_factory=list)
    records: list[outsize.StepRecord] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    budget: int = 0


def plan_of(run: Training, said: list[str] | None = None, **options: Any) -> outsize.Step:
    """The step of `run`, decorated; what it says goes to `said`."""
    lines: list[str] = [] if said is None else said
    decorate = outsize.step(run.model, run.optimizer, *run.others, log=lines.append, **options)
    return decorate(run.step)


def state_now(run: Training) -> dict[str, Any]:
    """Everything that the step of `run` may change, copied."""
    objects = [run.model, run.optimizer, *run.others]
    return state_of(
        [o for o in objects if isinstance(o, torch.nn.Module)],
        [o for o in objects if isinstance(o, torch.optim.Optimizer)],
    )


def train(make: Make, between: Between | None = None, **options: Any) -> Log:
    """Trains on all batches: eagerly without options, else planned with these."""
    torch.manual_seed(11)
    run = make()
    log = Log()
    call: Any = plan_of(run, log.said, **options) if options else run.step
    for index, batch in enumerate(run.batches):
        if between is not None:
            between(index, run)
        batch = tuple(tensor.clone() for tensor in batch)
        log.returned.append(results(call(*batch)))
        run.after()
        log.batches.append(batch)
        log.states.append(state_now(run))
        if options:
            log.records.append(call.last)
    if options:
        call.close()
    return log


def compare(wanted: Log, had: Log) -> None:
    assert len(wanted.states) == len(had.states)
    for index, (a, b) in enumerate(zip(wanted.returned, had.returned, strict=True)):
        assert len(a) == len(b) and all(map(same, a, b)), f"step {index} returned {b}, wanted {a}"
    for index, (before, now) in enumerate(zip(wanted.states, had.states, strict=True)):
        assert_equal(before, now, f"step {index}")
    for index, (a, b) in enumerate(zip(wanted.batches, had.batches, strict=True)):
        assert all(map(same, a, b)), f"step {index}: the batch"


def check_budget(log: Log, budget: int) -> None:
    """No step went over its budget, and each peak, as the highest byte touched, is what was forecast."""
    for record in log.records:
        assert 0 < record.peak_bytes <= record.forecast.peak_bytes <= budget
        # Plans place whole blocks of 64 bytes; what is counted is the bytes asked for.
        assert record.forecast.peak_bytes - record.peak_bytes < 64


def sizes_of(make: Make) -> tuple[int, int]:
    """(floor, unplanned peak) in bytes, of the first step or the second, whichever is larger."""
    run = make()
    step = plan_of(run, budget="64MiB")
    forecasts = [step.prepare(*run.batches[0])]
    step(*run.batches[0])
    forecasts.append(step.prepare(*run.batches[1]))
    step.close()
    return (
        max(forecast.floor_bytes for forecast in forecasts),
        max(forecast.unplanned_peak_bytes for forecast in forecasts),
    )


def split_floor_of(make: Make) -> int:
    """The floor in bytes with large ops split, of the first step or the second, whichever is larger."""
    floors = []
    run = make()
    for batch in run.batches[:2]:
        with pytest.raises(outsize.InfeasibleError) as refused:
            plan_of(run, budget="4KiB", seconds=1.0).prepare(*batch)
        assert refused.value.floor_bytes is not None
        floors.append(refused.value.floor_bytes)
        run.step(*batch)
    return max(floors)


def train_least(make: Make, budget: int, **options: Any) -> Log:
    """Trains inside `budget`, or the least that the planner says it can do, if it says no."""
    for _ in range(4):
        try:
            log = train(make, budget=budget, **options)
            log.budget = budget
            return log
        except outsize.InfeasibleError as error:
            assert error.least_bytes is not None, error
            assert error.least_bytes > budget, error
            budget = error.least_bytes
    raise AssertionError(f"what the planner called enough was not, up to {budget} bytes")


def train_share(make: Make, share: str, **options: Any) -> Log:
    """Trains inside a share of the unplanned peak ("60%"), or 15 % over the floor where that is more."""
    try:
        return train(make, budget=share, **options)
    except outsize.InfeasibleError as error:
        assert error.floor_bytes is not None, error
        return train_least(make, error.floor_bytes * 115 // 100, **options)


def equal_at_share(make: Make, share: str, seconds: float) -> Log:
    """Eager training repeats itself, and `train_share` has the same bits; returns the latter's log."""
    wanted = train(make)
    compare(wanted, train(make))  # the control
    log = train_share(make, share, seconds=seconds)
    compare(wanted, log)
    return log


def verified(run: Training, steps: int) -> None:
    """After so many steps, `outsize.verify` finds one more on the last batch equal, with room for all."""
    step = plan_of(run, budget="1MiB", seconds=0.5)
    for batch in run.batches[:steps]:
        step(*batch)  # from the first on the optimizer's state is there
    report = outsize.verify(step, *batch)
    assert report.equal, str(report)
    step.close()


@contextlib.contextmanager
def unchanged(run: Training) -> Iterator[None]:
    """Nothing of the training's state may change inside."""
    before = state_now(run)
    yield
    assert_equal(before, state_now(run), "changed")
