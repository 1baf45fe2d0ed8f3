"""Faults that a planned step once had, or that a reader found: each against eager, bit for bit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import outsize


def quiet(line: str) -> None:
    del line


def make(**options: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, **options)


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def train_on(data: torch.Tensor) -> Any:
    def build(model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
        def step(x: torch.Tensor) -> torch.Tensor:
            loss = (model(x) - x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step

    return build


def test_each_slice_of_a_data_set_is_its_own_batch() -> None:
    data = torch.randn(40, 16, generator=torch.Generator().manual_seed(1))
    build = train_on(data)
    model, optimizer = make()
    plain = build(model, optimizer)
    wanted = [plain(data[i * 8 : i * 8 + 8]).item() for i in range(5)]
    planned_model, planned_optimizer = make()
    step = outsize.step(planned_model, planned_optimizer, budget="1MiB", log=quiet)(
        build(planned_model, planned_optimizer)
    )
    had = [step(data[i * 8 : i * 8 + 8]).item() for i in range(5)]
    assert had == wanted and len(set(had)) == 5
    assert same(model, planned_model)
    assert step.captures == 1
    step.close()


def test_parameters_that_become_views_of_one_vector() -> None:
    data = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    build = train_on(data)
    runs = []
    for planned in (False, True):
        model, optimizer = make(momentum=0.9)
        step = build(model, optimizer)
        if planned:
            step = outsize.step(model, optimizer, budget="1MiB", log=quiet)(step)
        losses = [step(data).item() for _ in range(2)]
        vector = nn.utils.parameters_to_vector(model.parameters()).detach() * 0.5
        nn.utils.vector_to_parameters(vector, model.parameters())
        losses += [step(data).item() for _ in range(3)]
        moments = [optimizer.state[p]["momentum_buffer"].clone() for p in model.parameters()]
        runs.append((losses, [p.detach().clone() for p in model.parameters()], moments))
    (losses, parameters, moments), (had_losses, had_parameters, had_moments) = runs
    assert had_losses == losses
    assert all(torch.equal(a, b) for a, b in zip(parameters, had_parameters, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(moments, had_moments, strict=True))


def test_an_object_passed_as_an_argument_is_looked_at() -> None:
    data = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    results = []
    for planned in (False, True):
        model, optimizer = make()

        def step(
            x: torch.Tensor, settings: Any, model: Any = model, optimizer: Any = optimizer
        ) -> torch.Tensor:
            loss = (model(x) - x).square().mean() * settings.scale
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        run = outsize.step(model, optimizer, budget="1MiB", log=quiet)(step) if planned else step
        settings = SimpleNamespace(scale=1.0)
        losses = []
        for scale in (1.0, 0.5, 0.25, 1.0):
            settings.scale = scale
            losses.append(run(data, settings).item())
        results.append(losses)
    assert results[0] == results[1]


def test_a_rate_equal_to_the_weight_decay_stays_the_rate() -> None:
    data = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    build = train_on(data)
    models = []
    for planned in (False, True):
        model, optimizer = make(weight_decay=0.1, fused=True)
        step = build(model, optimizer)
        if planned:
            step = outsize.step(model, optimizer, budget="1MiB", log=quiet)(step)
        for rate in (0.1, 0.05, 0.1, 0.025):
            optimizer.param_groups[0]["lr"] = rate
            step(data)
        models.append(model)
    assert same(*models)


def test_a_rate_kept_in_the_users_own_dict_is_not_lost() -> None:
    data = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    model, _ = make()
    settings = {"lr": 0.1}

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = (model(x) - x).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(settings["lr"] * p.grad)
                p.grad = None
        settings["lr"] *= 0.5
        return loss

    planned = outsize.step(model, budget="1MiB", log=quiet)(step)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(outsize.CaptureError, match="lr"):
        planned(data)
    assert settings == {"lr": 0.1}
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_closing_one_of_two_steps_leaves_the_other_its_memory() -> None:
    data = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    model, optimizer = make()
    train = outsize.step(model, optimizer, budget="1MiB", log=quiet)(
        train_on(data)(model, optimizer)
    )

    def evaluate(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return model(x).mean()

    check = outsize.step(model, budget="1MiB", log=quiet)(evaluate)
    train(data)
    check(data)
    homes = check.shared_homes()
    train.close()
    again = outsize.step(model, optimizer, budget="1MiB", log=quiet)(
        train_on(data)(model, optimizer)
    )
    again(data)
    assert again.shared_homes() is homes
    assert torch.equal(check(data), evaluate(data))


def test_a_step_named_as_what_it_calls_is_not_looked_into() -> None:
    """`optimizer.step()` in a function of the global name `step`: the decorated step is no state of its own."""
    from outsize.capture.seal import Seal

    model, optimizer = make()
    scope = {"model": model, "optimizer": optimizer, "outsize": outsize, "quiet": quiet}
    exec(
        "@outsize.step(model, optimizer, budget='64MiB', log=quiet)\n"
        "def step(x):\n"
        "    loss = model(x).square().mean()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
        "    return loss\n",
        scope,
    )
    step: Any = scope["step"]
    step(torch.ones(4, 16))
    seal = Seal({"step": step.function})
    assert not [c.path for c in seal.containers if "_variants" in c.path or "_planner" in c.path]
    assert any(c.object is optimizer.param_groups for c in seal.containers)
    step.close()
