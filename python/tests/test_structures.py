"""Layers, precisions and shapes of steps that people write: each bit-equal by `outsize.verify`, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from step_models import minimizing
from torch import nn
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

import outsize

# What the step is made of: (models and optimizers, function, arguments).
Made = tuple[list[Any], Callable[..., Any], tuple[Any, ...]]


def trained(
    model: nn.Module, *batch: torch.Tensor, loss_of: Callable[..., torch.Tensor] | None = None
) -> Made:
    """Without a `loss_of`, the loss is the mean square of what the model returns, or returns first."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)

    def mean_square(*batch: torch.Tensor) -> torch.Tensor:
        out = model(*batch)
        return (out[0] if isinstance(out, tuple) else out).float().square().mean()

    return [model, optimizer], minimizing(optimizer, loss_of or mean_square), batch


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(32, 4, dropout=0.1, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x, x)[0]  # type: ignore[no-any-return]


class Spectrum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(17, dtype=torch.cfloat))
        self.mix = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft(torch.fft.rfft(self.mix(x)) * self.filter, n=32)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        ctx.doubled = x * 2
        return x * w

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        x, w = ctx.saved_tensors
        again, _ = ctx.saved_tensors
        return gradients[0] * w + ctx.doubled * 0, (gradients[0] * again * x / x).sum(0)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(32))
        self.out = nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(Scale.apply(x + 3, self.w))  # type: ignore[no-any-return]


class Adapter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(32, 32).requires_grad_(False)
        self.a = nn.Parameter(torch.randn(32, 4) * 0.1)
        self.b = nn.Parameter(torch.zeros(4, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + x @ self.a @ self.b  # type: ignore[no-any-return]


def autocast() -> Made:
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float().square().mean()

    return trained(model, torch.randn(16, 32), loss_of=loss_of)


def autocast_images() -> Made:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8)
    )

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
        return out.float().square().mean()

    return trained(model, torch.randn(4, 3, 12, 12), loss_of=loss_of)


def gradient_penalty() -> Made:
    model = nn.Sequential(nn.Linear(16, 32), nn.Softplus(), nn.Linear(32, 1))

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        y = model(x).sum()
        (slope,) = torch.autograd.grad(y, x, create_graph=True)
        return ((slope.norm(dim=1) - 1) ** 2).mean() + y * 0.1

    return trained(model, torch.randn(8, 16), loss_of=loss_of)


def hooks() -> Made:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    model[0].weight.register_hook(lambda gradient: gradient * 0.5)
    model[1].register_forward_hook(lambda module, given, out: out * 1.5)
    model[2].register_full_backward_hook(lambda module, given, out: (given[0] * 2,))
    return trained(model, torch.randn(8, 16))


def gan() -> Made:
    made = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
    judge = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(), nn.Linear(32, 1))
    made_optimizer, judge_optimizer = (torch.optim.Adam(m.parameters()) for m in (made, judge))

    def step(real: torch.Tensor) -> dict[str, torch.Tensor]:
        fake = made(torch.randn(8, 8))
        judge_optimizer.zero_grad()
        judged = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
        judged.backward()
        judge_optimizer.step()
        made_optimizer.zero_grad()
        fooled = F.softplus(-judge(fake)).mean()
        fooled.backward()
        made_optimizer.step()
        return {"judge": judged, "generator": fooled}

    return [made, judge, made_optimizer, judge_optimizer], step, (torch.randn(8, 16),)


def teacher() -> Made:
    teaches = nn.Linear(16, 8).requires_grad_(False)
    learns = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    optimizer = torch.optim.AdamW(learns.parameters())

    def step(batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, float]:
        with torch.no_grad():
            wanted = teaches(batch["x"])
        loss = F.mse_loss(learns(batch["x"]), wanted)
        loss.backward()
        nn.utils.clip_grad_norm_(learns.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss, loss.item()

    return [teaches, learns, optimizer], step, ({"x": torch.randn(8, 16)},)


def accumulation() -> Made:
    model = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.1), nn.Linear(32, 8))
    optimizer = torch.optim.AdamW(model.parameters())

    def step(batches: list[torch.Tensor]) -> torch.Tensor:
        total = torch.zeros(())
        for x in batches:
            loss = model(x).square().mean() / len(batches)
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return total

    return [model, optimizer], step, ([torch.randn(4, 16) for _ in range(3)],)


def average() -> Made:
    model = nn.Linear(16, 8)
    kept = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    objects, plain, batch = trained(model, torch.randn(8, 16))

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = plain(x)
        kept.update_parameters(model)
        return loss  # type: ignore[no-any-return]

    return [model, kept, objects[1]], step, batch


def losses() -> Made:
    model = nn.Linear(16, 8)

    def loss_of(x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        y = model(x)
        still = y.detach()
        return (
            F.cross_entropy(y, classes, label_smoothing=0.1)
            + F.smooth_l1_loss(y, still * 0.5)
            + F.huber_loss(y, still * 0.3)
            + F.binary_cross_entropy_with_logits(y, torch.ones_like(y))
            + F.kl_div(F.log_softmax(y, -1), F.softmax(still, -1), reduction="batchmean")
        )

    return trained(model, torch.randn(8, 16), torch.randint(0, 8, (8,)), loss_of=loss_of)


def images(*layers: nn.Module) -> Made:
    return trained(nn.Sequential(*layers), torch.randn(2, 3, 12, 12))


def rows(*layers: nn.Module) -> Made:
    return trained(nn.Sequential(*layers), torch.randn(16, 32))


EQUAL: dict[str, Callable[[], Made]] = {
    "gru": lambda: trained(nn.GRU(16, 32, batch_first=True), torch.randn(4, 12, 16)),
    "rnn": lambda: trained(nn.RNN(16, 32), torch.randn(12, 4, 16)),
    "transposed convolution": lambda: images(
        nn.ConvTranspose2d(3, 8, 4, 2, 1), nn.InstanceNorm2d(8), nn.LeakyReLU(), nn.Conv2d(8, 3, 3)
    ),
    "channels last": lambda: images(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)
    ),
    "attention": lambda: trained(Attention(), torch.randn(2, 8, 32)),
    "transformer": lambda: trained(
        nn.Transformer(32, 4, 1, 1, 64, batch_first=True),
        torch.randn(2, 8, 32),
        torch.randn(2, 6, 32),
    ),
    "embedding bag": lambda: trained(nn.EmbeddingBag(50, 16), torch.randint(0, 50, (4, 6))),
    "autocast": autocast,
    "autocast images": autocast_images,
    "bf16": lambda: trained(nn.Linear(32, 8).bfloat16(), torch.randn(16, 32).bfloat16()),
    "float64": lambda: trained(nn.Linear(32, 8).double(), torch.randn(16, 32).double()),
    "fft": lambda: trained(Spectrum(), torch.randn(16, 32)),
    "weight norm": lambda: rows(weight_norm(nn.Linear(32, 32)), nn.ReLU(), nn.Linear(32, 8)),
    "spectral norm": lambda: rows(spectral_norm(nn.Linear(32, 32)), nn.ReLU(), nn.Linear(32, 8)),
    "autograd function": lambda: trained(Scaled(), torch.randn(16, 32)),
    "adapters": lambda: rows(Adapter(), nn.GELU(), Adapter()),
    "gradient penalty": gradient_penalty,
    "hooks": hooks,
    "gan": gan,
    "teacher": teacher,
    "accumulation": accumulation,
    "moving average": average,
    "losses": losses,
}


@pytest.mark.parametrize("name", EQUAL)
def test_bits_are_equal(name: str) -> None:
    torch.manual_seed(7)
    objects, function, batch = EQUAL[name]()
    if name == "channels last":
        objects[0].to(memory_format=torch.channels_last)
        batch = (batch[0].to(memory_format=torch.channels_last),)
    step = outsize.step(*objects, budget="1MiB", seconds=0.5, log=lambda line: None)(function)
    step(*batch)  # the optimizer's state is there from here on
    report = outsize.verify(step, *batch)
    assert report.equal, str(report)
    step.close()


def lstm() -> Made:
    return trained(nn.LSTM(16, 32), torch.randn(12, 4, 16))


def compiled() -> Made:
    return trained(torch.compile(nn.Linear(16, 8)), torch.randn(4, 16))  # type: ignore[arg-type]


def branch() -> Made:
    model = nn.Linear(16, 8)
    objects, plain, batch = trained(model, torch.randn(4, 16))

    def step(x: torch.Tensor) -> Any:
        return plain(x * 2) if model(x).sum() > 0 else plain(x)

    return objects, step, batch


def masked() -> Made:
    objects, plain, _ = trained(nn.Linear(16, 8))
    rows_ = torch.tensor([True, False, True, True])
    return objects, lambda x, keep: plain(x[keep]), (torch.randn(4, 16), rows_)


def turned() -> Made:
    objects, plain, batch = trained(nn.Linear(16, 8), torch.randn(16, 4))
    return objects, lambda x: plain(x.t_()), batch


def checkpointed() -> Made:
    from torch.utils.checkpoint import checkpoint

    inner = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.2), nn.Linear(32, 8))

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.inner, x, use_reentrant=False)  # type: ignore[no-any-return]

    return trained(Outer(), torch.randn(4, 16))


REFUSED: dict[str, tuple[Callable[[], Made], str]] = {
    "lstm": (lstm, r"mkldnn\.flags\(enabled=False\)"),
    "compiled": (compiled, r"compiled by torch\.compile"),
    "branch on data": (branch, r"torch\.where"),
    "boolean mask": (masked, "depends on tensor data"),
    "embedding with max_norm": (
        lambda: trained(nn.Embedding(50, 16, max_norm=1.0), torch.randint(0, 50, (4, 6))),
        "renormalise its weights between steps",
    ),
    "sparse embedding": (
        lambda: trained(nn.Embedding(50, 16, sparse=True), torch.randint(0, 50, (4, 6))),
        "sparse=False",
    ),
    "matrix exponential": (
        lambda: rows(orthogonal(nn.Linear(32, 32))),
        "orthogonalise its weights between steps",
    ),
    "shape changed in place": (turned, r"transpose\(\) for transpose_\(\)"),
    "checkpoint": (checkpointed, "Outsize recomputes by itself"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_to_do_and_change_nothing(name: str) -> None:
    torch.manual_seed(7)
    make, says = REFUSED[name]
    objects, function, batch = make()
    before = {n: t.clone() for n, t in objects[0].state_dict().items()}
    step = outsize.step(*objects, budget="1MiB", log=lambda line: None)(function)
    with pytest.raises(outsize.CaptureError, match=says):
        step(*batch)
    assert all(torch.equal(before[n], t) for n, t in objects[0].state_dict().items())
    step.close()
