"""Cases of writes in place, aliases, and memory that was there before the step was planned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from case_oracle import BATCHES, ROOMY, Subject, batch, equal, loss_of, mlp, run, stepping, update
from parity import assert_equal, same, state_of
from torch import nn
from torch.nn import functional

import outsize


# -- 10: writes into the caller's batch ----------------------------------------------------------
def _masks_its_batch(m: Any, o: Any, x: torch.Tensor, labels: torch.Tensor) -> Any:
    labels.view(-1).masked_fill_(torch.rand(8) < 0.3, -100)
    x.mul_(0.9)
    return update(o, functional.cross_entropy(m(x), labels, ignore_index=-100))


def _labels(k: int) -> torch.Tensor:
    return torch.randint(0, 5, (8,), generator=torch.Generator().manual_seed(k))


def test_case_10_writes_into_the_callers_batch() -> None:
    calls = [(batch(k), _labels(k)) for k in range(4)]
    equal(stepping(_masks_its_batch, lambda: nn.Linear(16, 5), calls=calls))


def test_case_10_writes_into_one_batch_given_at_every_step() -> None:
    def make() -> Subject:
        m = nn.Linear(16, 5)
        o = torch.optim.SGD(m.parameters(), 0.1)

        def step(x: torch.Tensor, labels: torch.Tensor) -> Any:
            return _masks_its_batch(m, o, x, labels)

        return Subject([m], [o], step, [(batch(0), _labels(0))])

    def losses(planned: bool) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
        torch.manual_seed(7)
        subject = make()
        ((x, labels),) = subject.calls
        call: Any = subject.step
        if planned:
            call = outsize.step(
                *subject.models, *subject.optimizers, budget=ROOMY, log=lambda line: None
            )(subject.step)
        return [call(x, labels) for _ in range(4)], x, labels

    (plain, x, labels), (planned, planned_x, planned_labels) = losses(False), losses(True)
    assert torch.equal(x, planned_x) and torch.equal(labels, planned_labels)
    assert all(map(same, plain, planned)), (plain, planned)
    assert (labels == -100).sum() > 3  # later steps found the masks of earlier ones


# -- 11 and 12: aliases --------------------------------------------------------------------------
def test_case_11_a_detached_alias_taken_before_a_write() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        h = m(x) * 1
        d = h.detach()
        h.mul_(2)
        return update(o, (h - 0.5 * d).square().mean()), d

    equal(stepping(body))


def test_case_12_an_optimizer_that_updates_views_of_parameters() -> None:
    kept: list[tuple[nn.Module, list[torch.Tensor]]] = []

    def make() -> Subject:
        m = mlp()
        views = [p.detach().view(-1) for p in m.parameters()]
        kept.append((m, views))

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = loss_of(m, x)
            gradients = torch.autograd.grad(loss, list(m.parameters()))
            with torch.no_grad():
                for view, gradient in zip(views, gradients, strict=True):
                    for begin in range(0, view.numel(), 100):
                        g = gradient.reshape(-1)[begin : begin + 100]
                        view[begin : begin + 100].sub_(g / (g.norm() + 1e-6), alpha=0.1)
            return loss.detach()

        def live() -> list[torch.Tensor]:
            for view, p in zip(views, m.parameters(), strict=True):
                assert view.untyped_storage()._cdata == p.untyped_storage()._cdata
            return list(views)

        return Subject([m], [], step, BATCHES, also=live)

    equal(make)


# -- 13: views that are saved for backward -------------------------------------------------------
def _saves_a_shift(m: Any, x: torch.Tensor) -> torch.Tensor:
    return (m[0](x)[1:] ** 2).exp().mean()


def _saves_a_wide_row(m: Any, x: torch.Tensor) -> torch.Tensor:
    row = m[0](x).mean(0, keepdim=True).repeat(1, 32)[:, :1000]
    return (row.expand(64, 1000) * m[1]).square().mean()


def _saves_a_stepped_slice(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m[0](x)[:, ::2].sin().square().mean()


class _WithScale(nn.ModuleList):
    def __init__(self) -> None:
        super().__init__([nn.Linear(16, 32)])
        self.scale = nn.Parameter(torch.ones(64, 1))

    def __getitem__(self, index: int) -> Any:
        return self.scale if index == 1 else super().__getitem__(index)


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(_saves_a_shift, id="x[1:]"),
        pytest.param(_saves_a_wide_row, id="row.expand(64, 1000)"),
        pytest.param(_saves_a_stepped_slice, id="z[:, ::2]"),
    ],
)
def test_case_13_views_saved_for_backward(loss: Callable[..., torch.Tensor]) -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        return update(o, loss(m, x))

    runs = equal(stepping(body, _WithScale))
    assert runs["swapped"].records[-1].swapped["activation"] > 0


def test_case_13_an_expanded_value_moves_as_its_storage() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        row = m[0](x).mean(0, keepdim=True).repeat(1, 32)[:, :1000].contiguous()
        wide = row.expand(64, 1000)
        return update(o, (wide.sum(0) * row).mean())  # saves nothing that has 64 rows

    runs = equal(stepping(body, _WithScale))
    # A row that is shown 64 times is 4,000 bytes, and moves as such.
    assert 0 < runs["swapped"].records[-1].swapped["activation"] < 64 * 1000 * 4


# -- 14: spectral norm ---------------------------------------------------------------------------
def test_case_14a_spectral_norm_advances_twice_a_step() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        return update(o, m(x).mean() - m(0.5 * x + 1).mean())

    equal(stepping(body, lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(16, 1))))


def test_case_14b_a_second_backward_through_changed_weights_fails_as_in_eager() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        loss = m(x).mean()
        loss.backward(retain_graph=True)
        o.step()
        loss.backward()
        return loss.detach()

    def model() -> nn.Module:
        torch.manual_seed(7)
        return nn.Sequential(
            nn.utils.spectral_norm(nn.Linear(16, 16)), nn.utils.spectral_norm(nn.Linear(16, 1))
        )

    make = stepping(body, model)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        run(make)
    subject = make()
    step = outsize.step(*subject.models, *subject.optimizers, budget=ROOMY, log=lambda line: None)(
        subject.step
    )
    before = state_of(list(subject.models), list(subject.optimizers))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        step(*subject.calls[0])
    assert_equal(before, state_of(list(subject.models), list(subject.optimizers)), "the failure")


# -- 15 and 16: hooks and functions of one's own --------------------------------------------------
class _Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(16)), nn.Parameter(torch.ones(16))
        self.a.register_hook(lambda g: g.mul_(0.5))


def test_case_15_a_hook_that_writes_into_a_shared_gradient() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        return update(o, ((m.a + m.b).square() * x).sum())

    runs = equal(stepping(body, _Sum, lambda p: torch.optim.SGD(p, 1e-3)))
    state = runs["roomy"].states[0]
    assert torch.equal(state["grad a"], state["grad b"])  # one gradient, halved for both


class _KeepsWeight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.w = w
        return x @ w

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (x,) = ctx.saved_tensors
        return grads[0] @ ctx.w.t(), x.t() @ grads[0]


class _WritesBuffer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        ctx.buffer = buffer
        ctx.save_for_backward(x)
        return x * buffer

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        out = grads[0] * ctx.buffer
        ctx.buffer.mul_(0.9).add_(0.1 * ctx.saved_tensors[0].mean(0))
        return out, None


class _Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.eye(16) for _ in range(3)])
        self.register_buffer("buffer", torch.ones(16))


def test_case_16a_a_weight_kept_on_the_context() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        for w in m.weights:
            x = _KeepsWeight.apply(x, w)
        return update(o, (x - 1).square().mean())

    runs = equal(stepping(body, _Chain))
    # The weights were away between forward and backward.
    assert runs["swapped"].records[-1].swapped["parameter"] >= 3 * 16 * 16 * 4


def test_case_16b_a_buffer_changed_in_a_custom_backward() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        h = _WritesBuffer.apply(x @ m.weights[0], m.buffer)
        return update(o, (h - 1).square().mean())

    equal(stepping(body, _Chain))
