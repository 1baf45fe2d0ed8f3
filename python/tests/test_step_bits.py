"""Five steps of five kinds of training under several budgets, bit for bit as eager PyTorch does them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from step_models import Training, gpt2, mlp, resnet, unet
from step_parity import check_budget, compare, sizes_of, train, train_least

# Each model with one optimizer, each optimizer with one model; and a debugging mode for each.
CASES: dict[str, tuple[Callable[[], Training], dict[str, Any]]] = {
    "gpt2-sdpa": (lambda: gpt2("sdpa", "adamw", scheduler_inside=True), {"poison": True}),
    "gpt2-eager": (lambda: gpt2("eager", "foreach", scheduler_inside=False), {"poison": True}),
    "resnet": (lambda: resnet("momentum"), {"poison": True}),
    "mlp": (lambda: mlp("fused"), {"clock": True}),
    "unet": (lambda: unet("adamw"), {"poison": True, "clock": True}),
}


@pytest.mark.parametrize("name", CASES)
def test_bits_at_every_budget(name: str) -> None:
    make, modes = CASES[name]
    wanted = train(make)
    compare(wanted, train(make))  # the control: eager repeats itself
    floor, peak = sizes_of(make)
    assert floor < peak

    # Alignment of many small tensors can need a little more than the bytes that are alive.
    full = train_least(make, peak, **modes)
    compare(wanted, full)
    check_budget(full, full.budget)
    assert full.budget <= 1.1 * peak, (full.budget, peak)

    middle = train_least(make, peak * 6 // 10, **modes)
    compare(wanted, middle)
    check_budget(middle, middle.budget)

    tight = train(make, budget=floor * 3 // 2, **modes)
    compare(wanted, tight)
    check_budget(tight, floor * 3 // 2)
    if floor * 3 // 2 < 0.9 * peak:
        assert all(sum(record.moved.values()) > 0 for record in tight.records)


@pytest.mark.parametrize("name", ["resnet", "mlp", "unet"])
def test_bits_close_to_the_floor(name: str) -> None:
    """At five percent above the floor, or the least budget that the planner names instead."""
    make, modes = CASES[name]
    floor, _ = sizes_of(make)
    least = train_least(make, floor * 105 // 100, **modes)
    compare(train(make), least)
    check_budget(least, least.budget)
    assert least.budget <= 1.5 * floor, (least.budget, floor)


def test_control_sees_a_difference() -> None:
    """What the comparisons above rest on: another seed of dropout is another run."""

    def draw(index: int, run: Training) -> None:
        if index == 2:
            torch.rand(1)

    wanted = train(lambda: mlp("sgd"))
    other = train(lambda: mlp("sgd"), between=draw)
    with pytest.raises(AssertionError):
        compare(wanted, other)
