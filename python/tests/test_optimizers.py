"""Every optimizer of torch.optim on one model: bit-equal by `outsize.verify`, or refused with its reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import outsize

SHORT: dict[str, tuple[str, dict[str, Any]]] = {
    "Adadelta": ("Adadelta", {}),
    "Adafactor": ("Adafactor", {}),
    "Adagrad": ("Adagrad", {"lr_decay": 0.1}),
    "Adam amsgrad": ("Adam", {"amsgrad": True}),
    "Adam fused": ("Adam", {"fused": True}),
    "Adam tensor rate": ("Adam", {"lr": torch.tensor(1e-3)}),
    "Adamax": ("Adamax", {}),
    "AdamW foreach": ("AdamW", {"foreach": True}),
    "ASGD": ("ASGD", {}),
    "Muon": ("Muon", {}),
    "NAdam decoupled": ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    "RAdam": ("RAdam", {}),
    "RMSprop centered": ("RMSprop", {"centered": True, "momentum": 0.9}),
    "Rprop": ("Rprop", {}),
    "SGD nesterov": ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "SGD maximize": ("SGD", {"maximize": True}),
}
LONG = {
    f"{name} {option}": (name, {option: True})
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


def check(kind: str, options: dict[str, Any], steps: int) -> None:
    optimizer_class = getattr(torch.optim, kind, None)
    if optimizer_class is None:
        pytest.skip(f"torch {torch.__version__} has no torch.optim.{kind}")
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(24, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 8))
    parameters = [p for p in model.parameters() if kind != "Muon" or p.ndim == 2]
    optimizer = optimizer_class(parameters, **{"lr": 1e-3, **options})

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    planned = outsize.step(model, optimizer, budget="1MiB", seconds=0.5, log=lambda line: None)(
        step
    )
    x = torch.randn(16, 24)
    for _ in range(steps):
        planned(x)
    report = outsize.verify(planned, x)
    assert report.equal, str(report)
    planned.close()


@pytest.mark.parametrize("name", SHORT)
def test_optimizers(name: str) -> None:
    check(*SHORT[name], steps=2)


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_optimizers_in_their_other_forms(name: str) -> None:
    check(*LONG[name], steps=6)


def test_lbfgs_is_refused_with_its_reason() -> None:
    model = nn.Linear(8, 8)
    with pytest.raises(outsize.BadInputError, match="closure as often as the losses ask for"):
        outsize.step(model, torch.optim.LBFGS(model.parameters()), budget="1GiB")
