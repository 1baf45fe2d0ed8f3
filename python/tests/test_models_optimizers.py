"""Every optimizer of `torch.optim`, and one of a user's own, under a small budget: bits equal, or refused by name.
Then schedulers of each kind, groups with rates of their own, and a group that is added later."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from step_models import Training, mlp
from step_parity import compare, train, train_share
from torch import nn
from torch.nn import functional

import outsize

SEARCH_S = 0.1
Parameters = Iterable[torch.Tensor]
Made = Callable[[Parameters], torch.optim.Optimizer]
optim = torch.optim

# Each class of torch.optim with the options that take other ways through its code.
OPTIMIZERS: dict[str, Made] = {
    "Adadelta": lambda p: optim.Adadelta(p),
    "Adadelta-foreach": lambda p: optim.Adadelta(p, foreach=True, weight_decay=0.01),
    "Adafactor": lambda p: optim.Adafactor(p, lr=1e-2),
    "Adagrad": lambda p: optim.Adagrad(p, lr=1e-2, lr_decay=0.1),
    "Adagrad-fused": lambda p: optim.Adagrad(p, lr=1e-2, fused=True),
    "Adam": lambda p: optim.Adam(p),
    "Adam-amsgrad": lambda p: optim.Adam(p, amsgrad=True, maximize=True),
    "Adam-foreach": lambda p: optim.Adam(p, foreach=True, amsgrad=True),
    "Adam-fused": lambda p: optim.Adam(p, fused=True),
    "Adam-decoupled": lambda p: optim.Adam(p, weight_decay=0.1, decoupled_weight_decay=True),
    "AdamW": lambda p: optim.AdamW(p),
    "AdamW-foreach": lambda p: optim.AdamW(p, foreach=True),
    "AdamW-fused": lambda p: optim.AdamW(p, fused=True, amsgrad=True),
    "Adamax": lambda p: optim.Adamax(p),
    "Adamax-foreach": lambda p: optim.Adamax(p, foreach=True),
    "ASGD": lambda p: optim.ASGD(p, t0=2),
    "ASGD-foreach": lambda p: optim.ASGD(p, foreach=True),
    "Muon": lambda p: optim.Muon(p),
    "NAdam": lambda p: optim.NAdam(p),
    "NAdam-foreach": lambda p: optim.NAdam(p, foreach=True, decoupled_weight_decay=True),
    "RAdam": lambda p: optim.RAdam(p),
    "RAdam-foreach": lambda p: optim.RAdam(p, foreach=True),
    "RMSprop": lambda p: optim.RMSprop(p, centered=True, momentum=0.9),
    "RMSprop-foreach": lambda p: optim.RMSprop(p, foreach=True),
    "Rprop": lambda p: optim.Rprop(p),
    "Rprop-foreach": lambda p: optim.Rprop(p, foreach=True),
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1),
    "SGD-nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
    "SGD-fused": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
}
REFUSED = {"LBFGS", "SparseAdam"}  # each has a test of its own


class Lion(torch.optim.Optimizer):
    """A user's own: the sign of an interpolated momentum, written with tensor ops."""

    def __init__(self, params: Parameters, lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99)})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"]
                update = momentum.mul(first).add(parameter.grad, alpha=1 - first).sign_()
                parameter.add_(update, alpha=-group["lr"])
                momentum.lerp_(parameter.grad, 1 - second)


OPTIMIZERS["of the user's own"] = Lion


def _training(made: Made, after: Callable[[torch.optim.Optimizer], Any] | None = None) -> Training:
    torch.manual_seed(5)
    bias = made is not OPTIMIZERS["Muon"]  # which takes matrices only
    layers = [nn.Linear(24, 32, bias=bias), nn.GELU(), nn.Linear(32, 24, bias=bias)]
    model = nn.Sequential(layers[0], layers[1], nn.Dropout(0.1), layers[2])
    optimizer = made(model.parameters())

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = functional.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    generator = torch.Generator().manual_seed(6)
    batches = [(torch.randn(16, 24, generator=generator),) for _ in range(7)]
    run = Training(model, optimizer, step, batches)
    if after is not None:
        run.after = after(optimizer)
    return run


def _equal(make: Callable[[], Training], budget: str = "60%") -> Any:
    wanted = train(make)
    compare(wanted, train(make))
    log = train_share(make, budget, seconds=SEARCH_S)
    compare(wanted, log)
    return log


def test_no_optimizer_is_forgotten() -> None:
    there = {
        name
        for name, thing in vars(torch.optim).items()
        if inspect.isclass(thing)
        and issubclass(thing, torch.optim.Optimizer)
        and thing is not torch.optim.Optimizer
    }
    assert {name.partition("-")[0] for name in OPTIMIZERS if " " not in name} | REFUSED == there


@pytest.mark.long
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer(name: str) -> None:
    _equal(lambda: _training(OPTIMIZERS[name]), "75%")


def test_an_optimizer_of_the_users_own() -> None:
    _equal(lambda: _training(Lion), "75%")


def test_lbfgs_is_refused_with_its_reason() -> None:
    model = nn.Linear(4, 4)
    with pytest.raises(outsize.BadInputError, match="LBFGS runs the step's closure as often as"):
        outsize.step(model, torch.optim.LBFGS(model.parameters()), budget="1MiB")


def test_sparse_gradients_are_refused_with_the_way_out() -> None:
    model = nn.Embedding(20, 8, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters())

    def step(tokens: torch.Tensor) -> torch.Tensor:
        loss = model(tokens).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    planned = outsize.step(model, optimizer, budget="1MiB", log=lambda line: None)(step)
    before = model.weight.detach().clone()
    with pytest.raises(outsize.CaptureError, match="layout torch.sparse_coo.*sparse=False"):
        planned(torch.tensor([1, 2, 2]))
    assert torch.equal(model.weight, before) and model.weight.grad is None
    planned.close()


def test_sparse_adam_without_a_sparse_gradient_fails_as_in_pytorch() -> None:
    run = _training(torch.optim.SparseAdam)
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
        run.step(*run.batches[0])
    run.optimizer.zero_grad()
    planned = outsize.step(run.model, run.optimizer, budget="1MiB", log=lambda line: None)(run.step)
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
        planned(*run.batches[0])
    planned.close()


rates = torch.optim.lr_scheduler
SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "LambdaLR": lambda o: rates.LambdaLR(o, lambda epoch: 0.9**epoch),
    "MultiplicativeLR": lambda o: rates.MultiplicativeLR(o, lambda epoch: 0.95),
    "StepLR": lambda o: rates.StepLR(o, 2),
    "MultiStepLR": lambda o: rates.MultiStepLR(o, [2, 4]),
    "ConstantLR": lambda o: rates.ConstantLR(o, total_iters=3),
    "LinearLR": lambda o: rates.LinearLR(o, total_iters=4),
    "ExponentialLR": lambda o: rates.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: rates.PolynomialLR(o, 5),
    "CosineAnnealingLR": lambda o: rates.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: rates.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: rates.CyclicLR(o, 0.01, 0.1, step_size_up=2),
    "OneCycleLR": lambda o: rates.OneCycleLR(o, 0.1, total_steps=9),
    "SequentialLR": lambda o: rates.SequentialLR(
        o, [rates.ConstantLR(o, total_iters=2), rates.ExponentialLR(o, 0.9)], [2]
    ),
    "ChainedScheduler": lambda o: rates.ChainedScheduler(
        [rates.ConstantLR(o, total_iters=2), rates.ExponentialLR(o, 0.9)]
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_of_every_kind(name: str) -> None:
    """CyclicLR and OneCycleLR move the momentum too, which is part of what a capture holds for."""

    def make() -> Training:
        return _training(
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
            lambda optimizer: SCHEDULERS[name](optimizer).step,
        )

    log = _equal(make)
    if name not in ("CyclicLR", "OneCycleLR"):
        assert len([line for line in log.said if "planning again" in line]) == 1, log.said


def test_a_rate_that_follows_the_loss() -> None:
    """ReduceLROnPlateau, fed after the step with what the step returned."""

    def make() -> Training:
        run = _training(lambda p: torch.optim.SGD(p, lr=0.5))
        scheduler = rates.ReduceLROnPlateau(run.optimizer, patience=0, factor=0.5)
        inner = run.step
        run.after = lambda: scheduler.step(float(run.model[0].weight.detach().square().sum()))
        run.step = inner
        return run

    _equal(make)


def test_groups_with_their_own_rates_and_one_added_later() -> None:
    def make() -> Training:
        run = mlp("sgd", depth=2, width=16, batch=8)
        matrices = [p for p in run.model.parameters() if p.dim() == 2]
        others = [p for p in run.model.parameters() if p.dim() != 2]
        run.optimizer = torch.optim.AdamW(
            [{"params": matrices[:2], "lr": 0.02}, {"params": others, "weight_decay": 0.0}]
        )
        optimizer = run.optimizer
        seen = [0]

        def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            loss = functional.mse_loss(run.model(x), target)
            loss.backward()
            optimizer.step()
            run.model.zero_grad()
            return loss

        def after() -> None:
            seen[0] += 1
            if seen[0] == 3:
                optimizer.add_param_group({"params": matrices[2:], "lr": 0.05})

        run.step, run.after = step, after
        return run

    log = _equal(make, "75%")
    assert sum("planning again" in line for line in log.said) >= 2, log.said
