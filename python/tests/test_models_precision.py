"""Number formats and memory layouts: each step under a small budget, bit for bit as eager does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from parity import assert_equal, same, state_of
from step_models import STEPS, Training, minimizing
from step_parity import equal_at_share
from torch import nn
from torch.nn import functional

import outsize

SEARCH_S = 0.1


def _run(
    model: nn.Module,
    shape: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    loss_of: Callable[[torch.Tensor], torch.Tensor] | None = None,
    layout: Any = torch.contiguous_format,
) -> Training:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(6)
    step = minimizing(optimizer, loss_of or (lambda x: model(x).float().square().mean()))
    batches = [
        (torch.randn(shape, generator=generator).to(dtype).contiguous(memory_format=layout),)
        for _ in range(STEPS)
    ]
    return Training(model, optimizer, step, batches)


def _mlp() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Linear(24, 48), nn.LayerNorm(48), nn.GELU(), nn.Dropout(0.1), nn.Linear(48, 24)
    )


def autocast_bf16() -> Training:
    model = _mlp()

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return functional.mse_loss(model(x), x)

    return _run(model, (16, 24), loss_of=loss_of)


def autocast_with_a_shared_weight() -> Training:
    """The cast of a weight that is used twice is made once, and kept by autocast's cache."""
    model = nn.Sequential(nn.Linear(24, 24), nn.Tanh())
    torch.manual_seed(5)

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(model(x)).float().square().mean()

    return _run(model, (16, 24), loss_of=loss_of)


def bf16_parameters() -> Training:
    return _run(_mlp().bfloat16(), (16, 24), torch.bfloat16)


def float64() -> Training:
    return _run(_mlp().double(), (16, 24), torch.float64)


def channels_last() -> Training:
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2)
    )
    model = model.to(memory_format=torch.channels_last)
    return _run(model, (4, 3, 12, 12), layout=torch.channels_last)


class Spectral(nn.Module):
    """A block that mixes along time by multiplying in the frequency domain; lazy conjugates inside."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(9, 8, dtype=torch.complex64) * 0.1)
        self.out = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(x, dim=1)
        mixed = spectrum * self.filter + spectrum.conj() * self.filter.conj()
        return self.out(torch.fft.irfft(mixed, n=x.size(1), dim=1))


def complex_and_fft() -> Training:
    torch.manual_seed(5)
    return _run(Spectral(), (4, 16, 8))


KINDS = [
    autocast_bf16,
    autocast_with_a_shared_weight,
    bf16_parameters,
    float64,
    channels_last,
    complex_and_fft,
]


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_formats_and_layouts(make: Callable[[], Training]) -> None:
    equal_at_share(make, "85%", SEARCH_S)


def test_a_loss_scaler_skips_a_step_with_inf() -> None:
    """fp16 autocast with a GradScaler on the CPU; the third batch has an inf. Equal, or refused by name
    before anything has changed: unscaled gradients decide in Python whether the optimizer runs.
    """

    def make() -> tuple[Training, torch.amp.GradScaler]:
        model = _mlp()
        run = _run(model, (16, 24))
        run.batches[2][0][0, 0] = float("inf")
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

        def step(x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.float16):
                loss = functional.mse_loss(model(x), x)
            scaler.scale(loss).backward()
            scaler.step(run.optimizer)
            scaler.update()
            run.optimizer.zero_grad()
            return loss

        run.step = step
        return run, scaler

    run, _ = make()
    before = [p.detach().clone() for p in run.model.parameters()]
    planned = outsize.step(run.model, run.optimizer, budget="1MiB", log=lambda line: None)(run.step)
    with pytest.raises(outsize.CaptureError, match="known only while it runs"):
        planned(*run.batches[0])
    assert all(same(a, b) for a, b in zip(before, run.model.parameters(), strict=True))
    assert all(p.grad is None for p in run.model.parameters())
    planned.close()


def test_a_loss_scaler_with_a_fused_optimizer_skips_a_step_with_inf() -> None:
    """The fused kernel is given the scale and the flag: nothing is decided in Python, and all is equal."""

    def train_with(planned: bool) -> list[Any]:
        model = _mlp()
        run = _run(model, (16, 24))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        scaler.scale(torch.zeros(()))  # its tensors are made at first use: before the first step

        def step(x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.float16):
                loss = functional.mse_loss(model(x), x)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            return loss

        call: Any = step
        if planned:
            options: dict[str, Any] = dict(budget="64KiB", seconds=SEARCH_S, log=lambda line: None)
            call = outsize.step(model, optimizer, **options)(step)
        torch.manual_seed(1)
        kept = []
        for index, (x,) in enumerate(run.batches):
            if index == 2:
                x = x.clone()
                x[0, 0] = float("inf")
            kept.append((call(x), scaler.get_scale(), state_of([model], [optimizer])))
        if planned:
            call.close()
        return kept

    wanted, had = train_with(False), train_with(True)
    scales = [scale for _, scale, _ in wanted]
    assert scales[2] == scales[1] / 2
    assert [scale for _, scale, _ in had] == scales
    for (a, _, before), (b, _, now) in zip(wanted, had, strict=True):
        assert same(a, b)
        assert_equal(before, now, "scaler")
