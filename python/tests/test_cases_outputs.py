"""Cases of outputs, the border between steps, and saving."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from case_oracle import (
    BATCHES,
    ROOMY,
    Subject,
    batch,
    equal,
    mlp,
    refused,
    stepping,
    update,
)
from parity import same
from torch import nn

import outsize


# -- 23 -------------------------------------------------------------------------------------------
def test_case_23_results_kept_over_twenty_steps() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        h = m(x)
        loss = update(o, (h - x).square().mean())
        return {"loss": loss, "logits": h.detach(), "row": h[0]}

    def kept(planned: bool) -> list[dict[str, torch.Tensor]]:
        torch.manual_seed(7)
        subject = stepping(body)()
        call: Any = subject.step
        if planned:
            call = outsize.step(
                *subject.models,
                *subject.optimizers,
                budget=ROOMY,
                seconds=0.3,
                log=lambda line: None,
            )(subject.step)
        return [call(batch(k % 5)) for k in range(20)]

    plain, planned = kept(False), kept(True)
    for a, b in zip(plain, planned, strict=True):
        assert all(same(a[key], b[key]) for key in a)
    total = planned[0]["loss"] + planned[1]["loss"]
    assert same(total, plain[0]["loss"] + plain[1]["loss"])
    # Memory grows by exactly what is kept, each result in memory of its own.
    for result in planned:
        assert result["logits"].untyped_storage().nbytes() == 8 * 16 * 4
        assert result["row"].untyped_storage().nbytes() == 8 * 16 * 4  # as in eager: a view of h
        assert plain[0]["row"].untyped_storage().nbytes() == 8 * 16 * 4


# -- 24 -------------------------------------------------------------------------------------------
class _WithBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()
        self.register_buffer("frozen", torch.ones(16))


def _returns_all_sorts(m: Any, o: Any, x: torch.Tensor) -> Any:
    h = m.net(x) * m.frozen
    update(o, (h - x).square().mean())
    return x, h.view(-1), h, x.mul_(2), m.net[0].weight, m.frozen


def test_case_24_outputs_that_alias_each_other_and_what_is_the_users() -> None:
    equal(stepping(_returns_all_sorts, _WithBuffer, calls=BATCHES[:4]))


def test_case_24_returned_objects_are_the_users_own() -> None:
    torch.manual_seed(7)
    subject = stepping(_returns_all_sorts, _WithBuffer)()
    step = outsize.step(
        *subject.models, *subject.optimizers, budget=ROOMY, seconds=0.3, log=lambda line: None
    )(subject.step)
    (model,) = subject.models
    for k in range(4):
        given = batch(k)
        x, flat, h, doubled, weight, frozen = step(given)
        assert x is given and doubled is given
        assert flat.untyped_storage()._cdata == h.untyped_storage()._cdata
        assert weight is model.net[0].weight and frozen is model.frozen
        if k == 0:
            first = h, h.detach().clone(), flat.detach().clone()
    assert same(first[0], first[1]) and same(first[0].view(-1), first[2])
    assert torch.equal(weight, model.net[0].weight)
    step.close()


# -- 25 and 26 ------------------------------------------------------------------------------------
class _Ema(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()
        self.register_buffer("ema", torch.zeros(16))


def _reads_ema(m: Any, o: Any, x: torch.Tensor) -> Any:
    h = m.net(x)
    m.ema.mul_(0.9).add_(0.1 * h.detach().mean(0))
    return update(o, (h - m.ema).square().mean())


def test_case_25a_a_buffer_rebound_inside_the_step() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        h = m.net(x)
        m.ema = 0.9 * m.ema + 0.1 * h.detach().mean(0)
        return update(o, (h - x).square().mean())

    refused(stepping(body, _Ema), "ema", "copy_", "test_cases_outputs.py:")


@pytest.mark.parametrize("kind", ["assigned", "another dtype"])
def test_case_25_a_buffer_replaced_between_steps(kind: str) -> None:
    def before(m: nn.Module, o: torch.optim.Optimizer) -> dict[int, Any]:
        def replace() -> None:
            if kind == "assigned":
                m.ema = torch.zeros(16)
            else:
                m.register_buffer("ema", torch.full((16,), 0.5, dtype=torch.float64))

        return {3: replace}

    runs = equal(stepping(_reads_ema, _Ema, before=before))
    ema = runs["roomy"].states[-1]["buffer ema"]
    assert ema.dtype == (torch.float32 if kind == "assigned" else torch.float64)
    if kind == "another dtype":
        assert any("planning again" in line for line in runs["roomy"].said)


def test_case_26_a_running_mean_that_keeps_its_graph() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        h = m.net(x)
        m.ema = 0.9 * m.ema + 0.1 * h.mean(0)
        return update(o, (h - x).square().mean())

    models: list[Any] = []

    def make() -> Subject:
        subject = stepping(body, _Ema)()
        models.append(subject.models[0])
        return subject

    refused(make, "ema", "detach", "test_cases_outputs.py:")
    assert type(models[0].ema) is torch.Tensor and models[0].ema.grad_fn is None
