"""Cases of generators, and of what a capture leaves behind."""

from __future__ import annotations

import random
from typing import Any

import torch
from case_oracle import BATCHES, Subject, equal, loss_of, refused, stepping, update
from parity import assert_equal, state_of
from torch import nn

import outsize


def test_case_1_python_random_picks_rows() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        return update(o, loss_of(m, x[torch.tensor(random.sample(range(8), 4))]))

    refused(stepping(body), "random.sample()", "test_cases_generators.py:")


def test_case_1_an_own_random_object_picks_rows() -> None:
    rng = random.Random(3)

    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        return update(o, loss_of(m, x[torch.tensor(rng.sample(range(8), 4))]))

    before = rng.getstate()
    refused(stepping(body), "rng")
    assert rng.getstate() == before


def test_case_2_blocks_on_a_random_subset() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        i = torch.randperm(8)[:5]
        y = torch.index_add(x, 0, i, m(x[i]), alpha=8 / 5)
        return update(o, (y - x).square().mean())

    runs = equal(stepping(body))
    assert runs["recomputed"].records[-1].recomputed


def _normed() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Dropout(0.2), nn.Linear(32, 16))


def _adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 0.01)


def test_case_3_asking_about_a_step_leaves_nothing_behind() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        return update(o, loss_of(m, x))

    def asked() -> Subject:
        subject = stepping(body, _normed, _adamw)()
        plain = subject.step
        step = outsize.step(
            *subject.models, *subject.optimizers, budget="1MiB", seconds=0.3, log=lambda line: None
        )(plain)
        before = state_of(list(subject.models), list(subject.optimizers))
        outsize.estimate(step, *BATCHES[0])
        step.prepare(*BATCHES[0])
        assert_equal(before, state_of(list(subject.models), list(subject.optimizers)), "asking")
        step.close()
        return subject

    runs = equal(asked)
    assert runs["roomy"].states[0]["buffer 1.num_batches_tracked"].item() == 1


def test_case_3_a_refused_capture_leaves_nothing_behind() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        loss = update(o, loss_of(m, x))
        if loss > 0.5:
            loss = loss * 2
        return loss

    refused(stepping(body, _normed, _adamw), "test_cases_generators.py")


def test_case_3_a_step_can_be_planned_after_a_refused_one() -> None:
    bad = True

    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        loss = update(o, loss_of(m, x))
        return loss * 2 if bad and loss > 0.5 else loss

    make = stepping(body, _normed, _adamw)

    def mended() -> Subject:
        nonlocal bad
        subject = make()
        bad = True
        refused(lambda: subject, "test_cases_generators.py")
        bad = False
        torch.manual_seed(7)
        return subject

    equal(mended)
