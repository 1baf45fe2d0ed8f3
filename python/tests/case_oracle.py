"""Cases from public reports: each trains plainly, plainly again and planned in several ways, to the same bits.

equal(make)                                  # plain twice (the control), then in every mode
refused(make, "random.sample", "Way out")    # before its first step, with these words; nothing changed

A case is a function that makes its `Subject` anew for every run.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import pytest
import torch
from parity import assert_equal, results, same, state_of
from torch import nn

import outsize
from outsize.capture.entries import leaves

ROOMY = "64MiB"


@dataclass
class Subject:
    """What a run trains: `step` is called with each of `calls`, after what `before` has for that call."""

    models: Sequence[nn.Module]
    optimizers: Sequence[torch.optim.Optimizer]
    step: Callable[..., Any]
    calls: Sequence[tuple[Any, ...]]
    before: dict[int, Callable[[], None]] = field(default_factory=dict)
    also: Callable[[], list[Any]] = list  # what else has to be equal after every call


@dataclass
class Ran:
    """What each call of a run left."""

    returned: list[list[Any]] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    also: list[list[Any]] = field(default_factory=list)
    records: list[outsize.StepRecord] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    subject: Subject | None = None

    @property
    def captures(self) -> int:
        """How often the step was planned: once, and once for every line that says so."""
        return 1 + sum("planning again" in line for line in self.said)


def run(make: Callable[[], Subject], **options: Any) -> Ran:
    """All calls of the case: plainly without options, else under `outsize.step` with these."""
    torch.manual_seed(7)
    random.seed(7)
    numpy.random.seed(7)
    subject = make()
    ran = Ran(subject=subject)
    call: Any = subject.step
    if options:
        decorate = outsize.step(
            *subject.models, *subject.optimizers, log=ran.said.append, seconds=0.3, **options
        )
        call = decorate(subject.step)
    for index, arguments in enumerate(copy.deepcopy(list(subject.calls))):
        if index in subject.before:
            subject.before[index]()
        ran.returned.append(results(call(*arguments)))
        ran.calls.append(copy.deepcopy(arguments))
        ran.states.append(state_of(list(subject.models), list(subject.optimizers)))
        ran.also.append(copy.deepcopy(subject.also()))
        if options:
            ran.records.append(call.last)
    if options:
        call.close()
    return ran


def assert_same_run(wanted: Ran, had: Ran, mode: str) -> None:
    for index, state in enumerate(wanted.states):
        where = f"{mode}, call {index}"
        _all_same(wanted.returned[index], had.returned[index], f"{where}: returned")
        assert_equal(state, had.states[index], where)
        _all_same(_flat(wanted.calls[index]), _flat(had.calls[index]), f"{where}: its arguments")
        _all_same(wanted.also[index], had.also[index], f"{where}: beside the state")


def _flat(arguments: tuple[Any, ...]) -> list[Any]:
    return [leaf for _, leaf in leaves(list(arguments))]


def _all_same(wanted: list[Any], had: list[Any], where: str) -> None:
    assert len(wanted) == len(had), where
    for a, b in zip(wanted, had, strict=True):
        assert same(a, b), f"{where}: {a} is not {b}"


def equal(make: Callable[[], Subject], **options: Any) -> dict[str, Ran]:
    """Runs the case in every mode. Returns the runs: "plain", "roomy", "floor", "swapped", "recomputed"."""
    runs = {"plain": run(make)}
    assert_same_run(runs["plain"], run(make), "plain again")
    runs["roomy"] = run(make, budget=ROOMY, poison=True, **options)
    floor = max(record.forecast.floor_bytes for record in runs["roomy"].records)
    runs["floor"] = _at_least(make, floor * 105 // 100, poison=True, clock=True, **options)
    for mode, planner in (
        ("swapped", "swap-everything"),
        ("recomputed", "recompute-everything"),
    ):
        runs[mode] = run(make, budget=ROOMY, planner=planner, poison=True, **options)
    for mode, had in runs.items():
        assert_same_run(runs["plain"], had, mode)
        for record in had.records:
            assert record.peak_bytes <= record.forecast.peak_bytes, mode
    return runs


def _at_least(make: Callable[[], Subject], budget: int, **options: Any) -> Ran:
    """At this budget, or at the least that the planner says it needs where it says so."""
    for _ in range(4):
        try:
            had = run(make, budget=budget, **options)
        except outsize.InfeasibleError as error:
            assert error.least_bytes is not None and error.least_bytes > budget, error
            budget = error.least_bytes
            continue
        assert all(record.peak_bytes <= budget for record in had.records)
        return had
    raise AssertionError(f"what the planner called enough was not, up to {budget} bytes")


def refused(make: Callable[[], Subject], *words: str) -> str:
    """The first call is refused, the message has the words, and nothing has changed. Returns the message."""
    torch.manual_seed(7)
    random.seed(7)
    numpy.random.seed(7)
    subject = make()
    models, optimizers = list(subject.models), list(subject.optimizers)
    before, arguments = state_of(models, optimizers), copy.deepcopy(subject.calls[0])
    step = outsize.step(*models, *optimizers, budget=ROOMY, log=lambda line: None)(subject.step)
    with pytest.raises(outsize.OutsizeError) as caught:
        step(*subject.calls[0])
    assert_equal(before, state_of(models, optimizers), "the refusal changed")
    _all_same(_flat(arguments), _flat(subject.calls[0]), "the refusal changed its arguments")
    text = str(caught.value)
    for word in words:
        assert word in text, text
    assert "way out" in text.lower(), text
    step.close()
    return text


# -- what the cases have in common ---------------------------------------------------------------
def mlp(width: int = 16) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, width))


def batch(k: int) -> torch.Tensor:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(100 + k))


BATCHES = [(batch(k),) for k in range(5)]


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = (model(x) - x).square().mean()
    return loss


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.1)


def update(o: torch.optim.Optimizer, loss: torch.Tensor) -> torch.Tensor:
    """The rest of a plain step."""
    o.zero_grad()
    loss.backward()
    o.step()
    return loss.detach()


def stepping(
    body: Callable[..., Any],
    model: Callable[[], nn.Module] = mlp,
    optimizer: Callable[[Any], torch.optim.Optimizer] = sgd,
    calls: Sequence[tuple[Any, ...]] = tuple(BATCHES),
    before: (
        Callable[[nn.Module, torch.optim.Optimizer], dict[int, Callable[[], None]]] | None
    ) = None,
) -> Callable[[], Subject]:
    """The case whose step is body(model, optimizer, *arguments)."""

    def make() -> Subject:
        m = model()
        o = optimizer(m.parameters())

        def step(*arguments: Any) -> Any:
            return body(m, o, *arguments)

        return Subject([m], [o], step, calls, {} if before is None else before(m, o))

    return make
