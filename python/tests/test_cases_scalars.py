"""Cases of numbers, guards and Python's control flow."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from case_oracle import BATCHES, Subject, batch, equal, loss_of, mlp, refused, stepping, update
from torch import nn


def _weighted(m: nn.Module, o: Any, x: torch.Tensor, beta: float) -> torch.Tensor:
    h = m(x)
    return update(o, (h - x).square().mean() + beta * h.abs().mean())


class _Holder:
    """A trainer with the number as an attribute."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer, self.beta = model, optimizer, 0.0

    def step(self, x: torch.Tensor) -> torch.Tensor:
        return _weighted(self.model, self.optimizer, x, self.beta)


def _as_attribute() -> Subject:
    m = mlp()
    o = torch.optim.SGD(m.parameters(), 0.1)
    holder = _Holder(m, o)
    before = {k: lambda k=k: setattr(holder, "beta", k / 20) for k in range(5)}
    return Subject([m], [o], holder.step, [(batch(k),) for k in range(5)], before)


def _as_cell() -> Subject:
    m = mlp()
    o = torch.optim.SGD(m.parameters(), 0.1)
    beta = 0.0

    def step(x: torch.Tensor) -> torch.Tensor:
        return _weighted(m, o, x, beta)

    def set_to(value: float) -> None:
        nonlocal beta
        beta = value

    before = {k: lambda k=k: set_to(k / 20) for k in range(5)}
    return Subject([m], [o], step, [(batch(k),) for k in range(5)], before)


_AS_ARGUMENT = stepping(_weighted, calls=[(batch(k), k / 20) for k in range(5)])


@pytest.mark.parametrize(
    ("make", "most"),
    [
        # Whether there are gradients at entry is one change more than the number itself.
        pytest.param(_AS_ARGUMENT, 2, id="argument"),
        pytest.param(_as_attribute, 3, id="attribute"),
        pytest.param(_as_cell, 3, id="closure cell"),
    ],
)
def test_case_4_a_float_that_changes_at_every_call(make: Callable[[], Subject], most: int) -> None:
    runs = equal(make)
    assert runs["roomy"].captures <= most, runs["roomy"].said


def test_case_4_an_int_that_bounds_a_slice_plans_again_and_says_so() -> None:
    def body(m: Any, o: Any, x: torch.Tensor, rows: int) -> Any:
        return update(o, loss_of(m, x[:rows]))

    runs = equal(stepping(body, calls=[(batch(k), 4 + k % 2) for k in range(5)]))
    assert 3 <= runs["roomy"].captures <= 4, runs["roomy"].said


def test_case_5_windows_of_micro_batches() -> None:
    def body(m: Any, o: Any, xs: list[torch.Tensor]) -> Any:
        o.zero_grad()
        total = 0.0
        for x in xs:
            loss = (m(x) - x).square().sum() / (len(xs) * 16)
            loss.backward()
            total = total + loss.detach()
        o.step()
        return total

    sizes = [3, 3, 1, 3, 2]
    calls = [([batch(10 * n + i) for i in range(n)],) for n in sizes]
    runs = equal(stepping(body, calls=calls))
    # The first call finds no gradients; afterwards one plan a size, and the first serves again.
    assert runs["roomy"].captures == 4, runs["roomy"].said


def _scheduled(inside: bool) -> Callable[[], Subject]:
    def make() -> Subject:
        m = mlp()
        o = torch.optim.SGD(m.parameters(), 0.5)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0, factor=0.5)

        def step(x: torch.Tensor) -> Any:
            loss = update(o, loss_of(m, x))
            if inside:
                schedule.step(loss.item())
            return loss

        def after() -> None:
            # By the loss of a model that the step has just trained, as a user's loop would.
            with torch.no_grad():
                schedule.step(float((m[0](batch(0))).abs().mean()))

        return Subject([m], [o], step, BATCHES, {} if inside else dict.fromkeys(range(1, 5), after))

    return make


def test_case_6_a_scheduler_fed_with_the_loss_inside_the_step() -> None:
    refused(_scheduled(True), "ReduceLROnPlateau", "test_cases_scalars.py:", "after the step")


def test_case_6_a_scheduler_fed_with_a_loss_after_the_step() -> None:
    runs = equal(_scheduled(False))
    rates = {state["group 0.0.lr"] for state in runs["roomy"].states}
    assert len(rates) > 1  # never a frozen rate
    assert runs["roomy"].captures <= 3, runs["roomy"].said


class _Skipping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(4)])

    def forward(self, x: torch.Tensor, mask: tuple[bool, ...] | None) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            on = random.random() < 0.5 if mask is None else mask[index - 1]
            if index == 0 or on:
                x = x + layer(x)
        return x


def _fused_adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 0.01, fused=True)


def _skipping(m: Any, o: Any, x: torch.Tensor, mask: tuple[bool, ...] | None) -> Any:
    return update(o, (m(x, mask) - x).square().mean())


def test_case_7_layers_skipped_by_pythons_random() -> None:
    make = stepping(_skipping, _Skipping, _fused_adamw, [(batch(0), None)])
    refused(make, "random.random()", "test_cases_scalars.py:")


def test_case_7_layers_skipped_by_a_mask_that_is_passed_in() -> None:
    masks = [(True, False, True), (False, False, True), (True, False, True), (False, False, True)]
    calls = [(batch(k), mask) for k, mask in enumerate(masks)]
    runs = equal(stepping(_skipping, _Skipping, _fused_adamw, calls))
    assert runs["roomy"].captures <= 8, runs["roomy"].said
    # A layer that was never on has no optimizer state.
    steps = [name for name in runs["roomy"].states[-1] if name.startswith("state:step:")]
    assert len(steps) == 6 and not any("layers.2" in name for name in steps)


def test_case_8_targets_without_rows() -> None:
    def body(m: Any, o: Any, x: torch.Tensor, t: torch.Tensor) -> Any:
        h = m(x)
        n = len(t)
        loss = (h[:n, :4] - t).square().sum() / max(1, n) + 0.001 * h.square().mean()
        return update(o, loss)

    generator = torch.Generator().manual_seed(3)
    calls = [
        (batch(k), torch.randn(n, 4, generator=generator)) for k, n in enumerate([0, 3, 7, 0, 1])
    ]
    runs = equal(stepping(body, optimizer=lambda p: torch.optim.AdamW(p, 0.01), calls=calls))
    # Four numbers of rows; the first of them once without and once with optimizer state.
    assert runs["roomy"].captures == 5, runs["roomy"].said
    assert all(moved >= 0 for moved in runs["swapped"].records[0].moved.values())


class _Keeper:
    def __init__(self, kind: str) -> None:
        self.kind, self.n, self.hist = kind, 0, [1.0]
        self.total = torch.zeros(())
        self.m = mlp()
        self.o = torch.optim.SGD(self.m.parameters(), 0.1)

    def step(self, x: torch.Tensor) -> Any:
        loss = update(self.o, loss_of(self.m, x))
        if self.kind == "n":
            self.n += len(x)
        elif self.kind == "hist":
            self.hist.append(loss.item())
        elif self.kind == "print":
            print(loss.item())
        else:
            self.total.add_(loss)
        return loss

    def subject(self) -> Subject:
        return Subject([self.m], [self.o], self.step, BATCHES, also=lambda: [self.total])


def test_case_9_a_sum_kept_in_a_tensor() -> None:
    equal(lambda: _Keeper("total").subject())


@pytest.mark.parametrize(("kind", "word"), [("n", ".n"), ("hist", ".hist"), ("print", "prints")])
def test_case_9_python_state_that_grows(kind: str, word: str) -> None:
    keeper = _Keeper(kind)
    refused(keeper.subject, word)
    assert (keeper.n, keeper.hist) == (0, [1.0])
