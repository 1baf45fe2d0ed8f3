"""Steps of many sorts at three quarters of their peak, bit for bit as eager does them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from step_models import STEPS, Training, minimizing, mlp
from step_parity import check_budget, compare, sizes_of, train, train_least
from torch import nn
from torch.nn import functional

import outsize


def _with(run: Training, step: Callable[..., Any]) -> Training:
    run.step = step
    return run


def _model(make: Callable[[], nn.Module], optimizer: Any, shape: tuple[int, ...]) -> Training:
    """A model with random batches; its step minimizes the square of what it returns."""
    torch.manual_seed(1)
    model = make()
    chosen = optimizer(model.parameters())
    generator = torch.Generator().manual_seed(2)
    batches = [(torch.randn(shape, generator=generator),) for _ in range(STEPS)]
    step = minimizing(chosen, lambda x: model(x).square().mean())
    return Training(model, chosen, step, batches)


def autocast() -> Training:
    run = mlp("adamw", depth=2)

    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = run.model(x)
        loss = functional.mse_loss(output.float(), target)
        loss.backward()
        run.optimizer.step()
        run.optimizer.zero_grad()
        return loss

    return _with(run, step)


def bfloat16() -> Training:
    return _model(
        lambda: nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32)).bfloat16().float(),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        (16, 32),
    )


def lstm() -> Training:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LSTM(8, 16, num_layers=2, batch_first=True, dropout=0.1)
            self.head = nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.cells(x)[0][:, -1])

    run = _model(Last, lambda p: torch.optim.Adam(p, amsgrad=True), (4, 6, 8))
    inner = run.step

    def step(x: torch.Tensor) -> torch.Tensor:
        with torch.backends.mkldnn.flags(enabled=False):
            return inner(x)

    return _with(run, step)


def transformer_layer() -> Training:
    return _model(
        lambda: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True),
        lambda p: torch.optim.NAdam(p, lr=1e-3),
        (4, 12, 32),
    )


def frozen_and_unused() -> Training:
    """The first layer is frozen, one layer is never used: neither has a gradient."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.unused = (nn.Linear(24, 24) for _ in range(3))
            self.first.requires_grad_(False)
            self.empty = nn.Parameter(torch.empty(0, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x).relu())

    return _model(Model, lambda p: torch.optim.AdamW(p, lr=0.01), (8, 24))


def groups_and_adagrad() -> Training:
    """Two groups with rates of their own; Adagrad has its state from the start."""
    run = mlp("sgd", depth=2)
    parameters = list(run.model.parameters())
    groups = [{"params": parameters[:2], "lr": 0.1}, {"params": parameters[2:]}]
    run.optimizer = torch.optim.Adagrad(groups, lr=0.02)
    optimizer = run.optimizer
    run.after = lambda: optimizer.param_groups[0].update(lr=optimizer.param_groups[0]["lr"] * 0.9)

    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = functional.mse_loss(run.model(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return _with(run, step)


def tied_by_a_view() -> Training:
    """The output layer's weight is the embedding's, transposed: two parameters, one storage."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(24, 24) * 0.1)
            self.scale = nn.Parameter(torch.ones(24))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.linear(functional.linear(x, self.table) * self.scale, self.table.t())

    return _model(Model, lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5), (8, 24))


def tensors_of_closures() -> Training:
    """Class weights that the step only reads, a running mean that it writes, both held by closures."""
    run = mlp("momentum", depth=1)
    weights, seen = torch.linspace(0.5, 1.5, 48), torch.zeros(48)

    def step(x: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
        output = run.model(x)
        with torch.no_grad():
            seen.mul_(0.9).add_(output.mean(0), alpha=0.1)
        loss = ((output - target).square() * weights).mean()
        loss.backward()
        run.optimizer.step()
        run.optimizer.zero_grad()
        return {"loss": loss, "seen": seen.clone()}

    return _with(run, step)


@dataclass
class Pair:
    inputs: torch.Tensor
    target: torch.Tensor


def many_results() -> Training:
    """Metrics of every sort: a Python number, a view, the batch itself, a constant, a nested dict."""
    run = mlp("adamw", depth=1)

    def step(x: torch.Tensor, target: torch.Tensor) -> dict[str, Any]:
        output = run.model(x)
        loss = functional.mse_loss(output, target)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
        run.optimizer.step()
        run.optimizer.zero_grad()
        return {
            "loss": loss.item(),
            "some": output[:2, :3].detach(),
            "batch": x,
            "name": "mlp",
            "more": {"norm": norm, "twice": [loss.detach() * 2, loss.detach()]},
        }

    return _with(run, step)


def writes_its_batch() -> Training:
    """A step that normalizes its batch in place: the caller sees it."""
    run = mlp("sgd", depth=1)

    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x.sub_(x.mean()).div_(x.std())
        loss = functional.mse_loss(run.model(x), target)
        loss.backward()
        run.optimizer.step()
        run.optimizer.zero_grad()
        return loss

    return _with(run, step)


def average_inside() -> Training:
    """An average of the weights, kept by the step itself, in a second model."""
    run = mlp("adamw", depth=1)
    average = mlp("adamw", depth=1).model
    run.others = [average]

    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = functional.mse_loss(run.model(x), target)
        loss.backward()
        run.optimizer.step()
        run.optimizer.zero_grad()
        with torch.no_grad():
            for kept, now in zip(average.parameters(), run.model.parameters(), strict=True):
                kept.lerp_(now, 0.1)
        return loss

    return _with(run, step)


def embedding_with_sums() -> Training:
    """Gathers, scatters and sorts: ops with integers and with index results."""
    torch.manual_seed(4)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag = nn.EmbeddingBag(50, 16, mode="sum")
            self.head = nn.Linear(16, 8)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            scores = self.head(self.bag(tokens))
            top, where = scores.topk(3, dim=1)
            return torch.zeros_like(scores).scatter_add(1, where, top).cumsum(1)

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    batches = [(torch.randint(0, 50, (6, 5)),) for _ in range(STEPS)]
    step = minimizing(optimizer, lambda tokens: model(tokens).square().mean())
    return Training(model, optimizer, step, batches)


SORTS: list[Callable[[], Training]] = [
    autocast,
    bfloat16,
    lstm,
    transformer_layer,
    frozen_and_unused,
    groups_and_adagrad,
    tied_by_a_view,
    tensors_of_closures,
    many_results,
    writes_its_batch,
    average_inside,
    embedding_with_sums,
]


@pytest.mark.parametrize("make", SORTS, ids=lambda make: make.__name__)
def test_sorts_of_steps(make: Callable[[], Training]) -> None:
    wanted = train(make)
    compare(wanted, train(make))
    peak = sizes_of(make)[1]
    log = train_least(make, peak * 3 // 4, poison=True)
    compare(wanted, log)
    check_budget(log, log.budget)


def test_an_lstm_of_onednn_is_refused_with_the_way_out() -> None:
    model = nn.LSTM(8, 16, batch_first=True)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x)[0].mean()
        loss.backward()
        return loss

    planned = outsize.step(model, budget="1MiB", log=lambda line: None)(step)
    with pytest.raises(outsize.CaptureError, match="mkldnn_rnn_layer.*flags.enabled=False"):
        planned(torch.randn(4, 6, 8))
    assert all(parameter.grad is None for parameter in model.parameters())
