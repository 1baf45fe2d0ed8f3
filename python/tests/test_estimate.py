"""`outsize.estimate` says what a step needs before it runs, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from parity import assert_equal, state_of
from step_models import gpt2, mlp

import outsize


def test_an_estimate_is_what_the_step_then_does(tmp_path: Path) -> None:
    torch.manual_seed(3)
    run = gpt2("sdpa", "adamw", scheduler_inside=True)
    options = {"log": lambda line: None, "seconds": 2.0}
    step = outsize.step(run.model, run.optimizer, *run.others, budget="50%", **options)(run.step)
    step(*run.batches[0])
    step.close()
    step = outsize.step(run.model, run.optimizer, *run.others, budget="50%", **options)(run.step)
    before = state_of([run.model], [run.optimizer])
    had = outsize.estimate(step, *run.batches[1], budgets=("100%", "50%", 1000))
    assert_equal(before, state_of([run.model], [run.optimizer]), "estimate changed")
    whole, half, nothing = had.rows
    assert whole.fits and half.fits and not nothing.fits
    assert nothing.least_bytes is not None
    assert 1000 < nothing.least_bytes < had.unplanned_peak_bytes  # with splits, below the floor
    assert "would do" in str(had)
    assert sum(had.by_class.values()) == sum(had.by_module.values()) == had.unplanned_peak_bytes
    assert had.by_class["optimizer_state"] == 2 * sum(
        p.nbytes for p in run.model.parameters()
    ) + 4 * len(list(run.model.parameters()))
    assert ".py:" in had.peak_op and ".py:" in had.floor_op
    assert any("transformer.h.0" in module for module in had.by_module)
    step(*run.batches[1])
    assert step.last is not None and half.forecast is not None
    assert step.last.forecast.peak_bytes <= half.budget_bytes
    assert step.last.forecast.unplanned_peak_bytes == had.unplanned_peak_bytes
    assert step.last.forecast.floor_bytes == had.floor_bytes
    step.close()


def test_estimates_on_a_disk_have_nothing_on_the_host(tmp_path: Path) -> None:
    run = mlp("adamw")
    step = outsize.step(
        run.model, run.optimizer, budget="100%", disk=tmp_path, log=lambda line: None
    )(run.step)
    (row,) = outsize.estimate(step, *run.batches[0], budgets=("80%",)).rows
    assert row.forecast is not None
    assert row.forecast.host_bytes == 0 and row.forecast.disk_bytes > 0


def test_what_cannot_be_estimated_is_refused() -> None:
    with pytest.raises(outsize.BadInputError, match=r"decorated by outsize\.step"):
        outsize.estimate(lambda batch: batch, 1)  # type: ignore[arg-type]
    run = mlp("sgd")
    step = outsize.step(run.model, run.optimizer, budget="1GiB", log=lambda line: None)(run.step)
    with pytest.raises(outsize.BadInputError, match="can't read 'much'"):
        outsize.estimate(step, *run.batches[0], budgets=("much",))
