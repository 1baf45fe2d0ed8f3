"""Kinds of steps under a small budget, bit for bit as eager does them: what moves, what is made again,
gradients that stay between steps, batches of other sizes, and two steps that share a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from parity import assert_equal, same, state_of
from step_models import OPTIMIZERS, STEPS, Training, mlp
from step_parity import Log, check_budget, compare, plan_of, sizes_of, train, train_least
from torch import nn
from torch.nn import functional

import outsize
import outsize_core


@pytest.fixture
def slow_link(tmp_path: Path) -> str:
    """This machine, had it a link a hundred times as slow: making again is cheap beside moving."""
    machine = json.loads(outsize_core.measure_machine({"copy_bytes": 1 << 20, "rounds": 2}))
    for link in (machine, machine["out"], machine["in"]):
        for key in ("bytes_per_s", "both_bytes_per_s", "sync_bytes_per_s"):
            if key in link:
                link[key] = max(link[key] // 100, 1)
    path = tmp_path / "slow.json"
    path.write_text(json.dumps(machine))
    return str(path)


def test_all_kinds_of_bytes_move_and_dropout_is_run_again(slow_link: str) -> None:
    def make() -> Training:
        run = mlp("adamw", depth=4, width=48, batch=96)
        optimizer, model = run.optimizer, run.model

        def accumulate(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad(set_to_none=False)
            for part, wanted in zip(x.chunk(2), target.chunk(2), strict=True):
                loss = functional.mse_loss(model(part), wanted) / 2
                loss.backward()
            optimizer.step()
            return loss

        run.step = accumulate
        return run

    wanted = train(make)
    compare(wanted, train(make))
    budget = 90_000
    assert budget < sizes_of(make)[1] // 4
    log = train(make, budget=budget, machine=slow_link, poison=True)
    compare(wanted, log)
    check_budget(log, budget)
    forecast = log.records[-1].forecast
    for role in ("parameter", "optimizer_state", "gradient"):
        assert forecast.swapped.get(role, 0) > 0, (role, forecast.swapped)
    draws = [name for name in forecast.recomputed if name.startswith("aten.bernoulli_.float")]
    assert draws, forecast.recomputed
    # Counted as copies and reruns ended; the plan said the same.
    record = log.records[-1]
    assert (record.moved, record.swapped, record.recomputed) == (
        forecast.moved,
        forecast.swapped,
        forecast.recomputed,
    )
    assert sum(record.moved.values()) == sum(record.swapped.values()) > 0


def _zero_at_start(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _zero_in_the_middle(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = functional.mse_loss(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def _zero_at_the_end(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def _zero_in_place(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _never_zero(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _micro_batches(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    def step(x: torch.Tensor, target: torch.Tensor) -> dict[str, Any]:
        losses = []
        for part, wanted in zip(x.chunk(4), target.chunk(4), strict=True):
            loss = functional.mse_loss(model(part), wanted) / 4
            loss.backward()
            losses.append(loss.detach())
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        return {"loss": torch.stack(losses).sum(), "norm": norm, "parts": losses}

    return step


KINDS = [
    _zero_at_start,
    _zero_in_the_middle,
    _zero_at_the_end,
    _zero_in_place,
    _never_zero,
    _micro_batches,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.strip("_"))
def test_gradients_between_steps(kind: Callable[..., Callable[..., Any]]) -> None:
    def make() -> Training:
        run = mlp("momentum", depth=2)
        run.step = kind(run.model, run.optimizer)
        return run

    wanted = train(make)
    compare(wanted, train(make))
    floor, peak = sizes_of(make)
    log = train_least(make, (floor + peak) // 2, poison=True)
    compare(wanted, log)
    check_budget(log, log.budget)


def test_a_gradient_that_the_user_keeps_stays_as_it_was() -> None:
    """A step that drops its gradients first takes their place, not the tensor the user still holds."""

    def make() -> Training:
        run = mlp("sgd", depth=2)
        run.step = _zero_at_start(run.model, run.optimizer)
        return run

    kept: list[list[torch.Tensor]] = []

    def keep(index: int, run: Training) -> None:
        if index:
            kept[-1].append(run.model[0].weight.grad)

    logs: list[Log] = []
    for options in ({}, {"budget": "80%", "poison": True}):
        kept.append([])
        logs.append(train(make, between=keep, **options))
    compare(*logs)
    assert len(kept[0]) == STEPS - 1
    assert all(map(same, *kept))
    assert not same(kept[0][0], kept[0][1])


def test_a_short_batch_and_back() -> None:
    def make() -> Training:
        run = mlp("adamw")
        run.batches = [*run.batches[:3], tuple(t[:7] for t in run.batches[3]), *run.batches[:2]]
        return run

    wanted = train(make)
    floor, peak = sizes_of(make)
    log = train_least(make, (floor + peak) // 2, poison=True)
    compare(wanted, log)
    check_budget(log, log.budget)
    again = [line for line in log.said if "planning again" in line]
    assert len(again) == 2, log.said  # with optimizer state, and the short batch; not the way back
    assert "the arguments was" in again[1] and "[7, 48]" in again[1]


def _train_and_eval(budget: int | None, eval_first: bool) -> tuple[list[Any], list[dict[str, Any]]]:
    torch.manual_seed(12)
    run = mlp("adamw")
    step: Any = run.step

    def evaluate(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        run.model.eval()
        with torch.no_grad():
            loss = functional.mse_loss(run.model(x), target)
        run.model.train()
        return loss

    judge: Any = evaluate
    if budget is not None:
        step = plan_of(run, budget=budget, poison=True)
        judge = outsize.step(run.model, budget=budget, log=lambda line: None)(evaluate)
    returned, states = [], []
    if eval_first:
        returned.append(judge(*run.batches[0]))
    for index, batch in enumerate(run.batches):
        returned.append(step(*batch))
        if index % 2:
            returned.append(judge(*batch))
            returned.append(judge(*batch))
        states.append(state_of([run.model], [run.optimizer]))
    return [value.clone() for value in returned], states


@pytest.mark.parametrize("eval_first", [False, True])
def test_training_and_evaluation_share_the_homes(eval_first: bool) -> None:
    floor, peak = sizes_of(lambda: mlp("adamw"))
    for budget in (peak, train_least(lambda: mlp("adamw"), floor).budget):
        wanted, states = _train_and_eval(None, eval_first)
        had, planned = _train_and_eval(budget, eval_first)
        assert all(map(same, wanted, had)), (wanted, had)
        for index, (a, b) in enumerate(zip(states, planned, strict=True)):
            assert_equal(a, b, f"step {index}")


def test_two_models_with_an_optimizer_each() -> None:
    """A generator and a judge of it, each with a step of its own that reads the other."""

    def run(budget: str | None) -> list[dict[str, Any]]:
        torch.manual_seed(13)
        made, judge = nn.Linear(8, 16), nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 1))
        first, second = (OPTIMIZERS["adamw"](m.parameters()) for m in (made, judge))

        def train_judge(noise: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
            second.zero_grad()
            loss = judge(made(noise).detach()).mean() - judge(real).mean()
            loss.backward()
            second.step()
            return loss

        def train_made(noise: torch.Tensor) -> torch.Tensor:
            first.zero_grad()
            loss = -judge(made(noise)).mean()
            loss.backward()
            first.step()
            return loss

        steps: list[Any] = [train_judge, train_made]
        if budget is not None:
            decorate = [
                outsize.step(judge, made, second, budget=budget, log=lambda line: None),
                outsize.step(judge, made, first, budget=budget, log=lambda line: None),
            ]
            steps = [wrap(step) for wrap, step in zip(decorate, steps, strict=True)]
        states = []
        for _ in range(4):
            noise = torch.randn(16, 8)
            steps[0](noise, torch.randn(16, 16))
            steps[1](noise)
            states.append(state_of([made, judge], [first, second]))
        return states

    for wanted, had in zip(run(None), run("1MiB"), strict=True):
        assert_equal(wanted, had, "two models")
