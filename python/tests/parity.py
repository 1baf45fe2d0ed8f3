"""Runs a training step twice, plainly and through captures and `Replay`, and compares every bit.

run(make, batches)   # make() -> (models, optimizers, step); equal or an AssertionError says what differs
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from replay import Replay

from outsize.capture import Capture, capture
from outsize.capture.entries import Names, leaves
from outsize.capture.signature import signature

Made = tuple[list[torch.nn.Module], list[torch.optim.Optimizer], Callable[..., Any]]


@dataclass
class Captured:
    """The step, captured anew whenever no earlier capture serves."""

    models: list[torch.nn.Module]
    optimizers: list[torch.optim.Optimizer]
    step: Callable[..., Any]
    captures: list[Capture] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    symbols: frozenset[str] = frozenset()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        names = Names(self.models, self.optimizers)
        key = signature(args, kwargs, names)
        for captured in self.captures:
            if captured.signature == key:
                reason = captured.stale(args, kwargs)
                if not reason:
                    return Replay(captured).step(args, kwargs)
                self.reasons.append(reason)
        before = state_of(self.models, self.optimizers)
        captured = capture(
            self.step,
            args,
            kwargs,
            models=self.models,
            optimizers=self.optimizers,
            symbols=self.symbols,
        )
        assert_equal(before, state_of(self.models, self.optimizers), "capture changed")
        self.captures.append(captured)
        assert not captured.stale(args, kwargs)
        return Replay(captured).step(args, kwargs)


def state_of(
    models: list[torch.nn.Module], optimizers: list[torch.optim.Optimizer]
) -> dict[str, Any]:
    """Everything that a step may change, copied."""
    names = Names(models, optimizers)
    result: dict[str, Any] = {}
    for name, parameter in names.parameters:
        result[f"param {name}"] = parameter.detach().clone()
        gradient = parameter.grad
        result[f"grad {name}"] = None if gradient is None else gradient.detach().clone()
    for name, buffer in names.buffers:
        result[f"buffer {name}"] = buffer.detach().clone()
    for state in names.states():
        value = state.value
        result[names.state_name(state)] = (
            value.detach().clone() if isinstance(value, torch.Tensor) else value
        )
    for index, optimizer in enumerate(optimizers):
        for number, group in enumerate(optimizer.param_groups):
            for key, option in group.items():
                if key != "params":
                    result[f"group {index}.{number}.{key}"] = copy.copy(option)
    result["generator"] = torch.get_rng_state()
    result["random"] = random.getstate()
    result["numpy"] = repr(numpy.random.get_state())
    return result


def assert_equal(wanted: dict[str, Any], had: dict[str, Any], where: str) -> None:
    assert wanted.keys() == had.keys(), (where, wanted.keys() ^ had.keys())
    for name, value in wanted.items():
        assert same(value, had[name]), f"{where}: {name}: {value} is not {had[name]}"


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.dtype != b.dtype or a.size() != b.size():
            return False
        a, b = a.detach().contiguous(), b.detach().contiguous()
        if a.is_complex():
            a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
        return bool(torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8)))
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return False
    return bool(a == b or (a != a and b != b))


def results(value: Any) -> list[Any]:
    return [
        leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
        for _, leaf in leaves(dict(value) if hasattr(value, "keys") else value)
    ]


def run(
    make: Callable[[], Made],
    batches: list[tuple[Any, ...]],
    between: Callable[[int, Made], None] | None = None,
    symbols: frozenset[str] = frozenset(),
) -> Captured:
    """Both runs, step by step; returns the captured one."""
    logs: list[list[Any]] = []
    driver: Captured | None = None
    for planned in (False, True):
        torch.manual_seed(7)
        random.seed(7)
        numpy.random.seed(7)
        made = make()
        models, optimizers, step = made
        call: Callable[..., Any] = step
        if planned:
            call = driver = Captured(models, optimizers, step, symbols=symbols)
        log: list[Any] = []
        for index, batch in enumerate(copy.deepcopy(batches)):
            if between is not None:
                between(index, made)
            log.append((results(call(*batch)), state_of(models, optimizers), batch))
        logs.append(log)
    for index, (plain, planned_) in enumerate(zip(*logs)):
        assert len(plain[0]) == len(planned_[0]), index
        for a, b in zip(plain[0], planned_[0]):
            assert same(a, b), f"step {index}: returned {a}, captured {b}"
        assert_equal(plain[1], planned_[1], f"step {index}")
        for (path, a), (_, b) in zip(leaves(list(plain[2])), leaves(list(planned_[2]))):
            assert same(a, b), f"step {index}: batch {path}"
    assert driver is not None
    return driver
