"""Every optimizer of `torch.optim` in its forms, and one of a user's own: bits equal, or refused by name.
Then schedulers of each kind, groups with rates of their own, and a group that is added later."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from step_models import Training, minimizing, mlp
from step_parity import equal_at_share, plan_of, verified
from torch import nn
from torch.nn import functional

import outsize

SEARCH_S = 0.1
Parameters = Iterable[torch.Tensor]

# Each class of torch.optim with the options that take other ways through its code.
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "Adadelta": ("Adadelta", {}),
    "Adadelta-decayed": ("Adadelta", {"foreach": True, "weight_decay": 0.01}),
    "Adafactor": ("Adafactor", {"lr": 1e-2}),
    "Adagrad": ("Adagrad", {"lr": 1e-2, "lr_decay": 0.1}),
    "Adagrad-fused": ("Adagrad", {"lr": 1e-2, "fused": True}),
    "Adam": ("Adam", {}),
    "Adam-amsgrad": ("Adam", {"amsgrad": True}),
    "Adam-amsgrad-maximize": ("Adam", {"amsgrad": True, "maximize": True}),
    "Adam-amsgrad-foreach": ("Adam", {"amsgrad": True, "foreach": True}),
    "Adam-fused": ("Adam", {"fused": True}),
    "Adam-decoupled": ("Adam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    "Adam-tensor-rate": ("Adam", {"lr": torch.tensor(1e-3)}),
    "AdamW": ("AdamW", {}),
    "AdamW-fused": ("AdamW", {"fused": True, "amsgrad": True}),
    "Adamax": ("Adamax", {}),
    "ASGD": ("ASGD", {}),
    "ASGD-averaging": ("ASGD", {"t0": 2}),
    "Muon": ("Muon", {}),
    "NAdam": ("NAdam", {}),
    "NAdam-decoupled": ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    "NAdam-decoupled-foreach": ("NAdam", {"decoupled_weight_decay": True, "foreach": True}),
    "RAdam": ("RAdam", {}),
    "RMSprop": ("RMSprop", {"centered": True, "momentum": 0.9}),
    "Rprop": ("Rprop", {}),
    "Rprop-foreach": ("Rprop", {"foreach": True}),
    "SGD": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.1}),
    "SGD-decayed": ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "SGD-nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "foreach": True}),
    "SGD-fused": ("SGD", {"lr": 0.1, "momentum": 0.9, "fused": True}),
    "SGD-maximize": ("SGD", {"maximize": True}),
}
FORMS |= {
    f"{name}-{option}": (name, {option: True})
    for name in (
        "Adadelta",
        "Adagrad",
        "Adam",
        "Adamax",
        "AdamW",
        "ASGD",
        "NAdam",
        "RAdam",
        "RMSprop",
    )
    for option in ("foreach", "maximize")
}
QUICK = [
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam-amsgrad",
    "Adam-fused",
    "Adam-tensor-rate",
    "Adamax",
    "AdamW-foreach",
    "ASGD",
    "Muon",
    "NAdam-decoupled",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD-decayed",
    "SGD-maximize",
]
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


def _training(optimizer_class: type[torch.optim.Optimizer], **options: Any) -> Training:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(24, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 24))
    matrices_only = optimizer_class.__name__ == "Muon"  # the gradients of the rest add up
    parameters = [p for p in model.parameters() if p.ndim == 2 or not matrices_only]
    optimizer = optimizer_class(parameters, **options)
    step = minimizing(optimizer, lambda x: functional.mse_loss(model(x), x))
    generator = torch.Generator().manual_seed(6)
    batches = [(torch.randn(16, 24, generator=generator),) for _ in range(7)]
    return Training(model, optimizer, step, batches)


def _of_form(name: str) -> Training:
    kind, options = FORMS[name]
    optimizer_class = getattr(torch.optim, kind, None)
    if optimizer_class is None:
        pytest.skip(f"torch {torch.__version__} has no torch.optim.{kind}")
    return _training(optimizer_class, **options)


def test_no_optimizer_is_forgotten() -> None:
    there = {
        name
        for name, thing in vars(torch.optim).items()
        if inspect.isclass(thing)
        and issubclass(thing, torch.optim.Optimizer)
        and thing is not torch.optim.Optimizer
    }
    assert {kind for kind, _ in FORMS.values()} | REFUSED == there


@pytest.mark.parametrize("name", QUICK)
def test_optimizers(name: str) -> None:
    verified(_of_form(name), steps=2)


@pytest.mark.long
@pytest.mark.parametrize("name", FORMS)
def test_optimizers_in_every_form(name: str) -> None:
    equal_at_share(lambda: _of_form(name), "75%", SEARCH_S)
    verified(_of_form(name), steps=6)


def test_an_optimizer_of_the_users_own() -> None:
    equal_at_share(lambda: _training(Lion), "75%", SEARCH_S)


def test_lbfgs_is_refused_with_its_reason() -> None:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.LBFGS(model.parameters())
    says = "LBFGS runs the step's closure as often as the losses ask for"
    with pytest.raises(outsize.BadInputError, match=says):
        outsize.step(model, optimizer, budget="1GiB")


def test_sparse_gradients_are_refused_with_the_way_out() -> None:
    model = nn.Embedding(20, 8, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters())
    step = minimizing(optimizer, lambda tokens: model(tokens).square().mean())
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
    planned = plan_of(run, budget="1MiB")
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
        run = _training(torch.optim.SGD, lr=0.1, momentum=0.9)
        run.after = SCHEDULERS[name](run.optimizer).step
        return run

    log = equal_at_share(make, "60%", SEARCH_S)
    if name not in ("CyclicLR", "OneCycleLR"):
        assert len([line for line in log.said if "planning again" in line]) == 1, log.said


def test_a_rate_that_follows_the_training() -> None:
    """ReduceLROnPlateau, fed after each step with what the step has made of a weight."""

    def make() -> Training:
        run = _training(torch.optim.SGD, lr=0.5)
        scheduler = rates.ReduceLROnPlateau(run.optimizer, patience=0, factor=0.5)
        run.after = lambda: scheduler.step(float(run.model[0].weight.detach().square().sum()))
        return run

    equal_at_share(make, "60%", SEARCH_S)


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

    log = equal_at_share(make, "75%", SEARCH_S)
    assert sum("planning again" in line for line in log.said) >= 2, log.said
