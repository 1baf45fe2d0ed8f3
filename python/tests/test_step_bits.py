"""Five steps of five kinds of training under several budgets, bit for bit as eager PyTorch does them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from step_models import Training, gpt2, mlp, resnet, unet
from step_parity import check_budget, compare, sizes_of, split_floor_of, train

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
    _, peak = sizes_of(make)
    floor = split_floor_of(make)
    tight = floor * 105 // 100
    assert tight < peak * 6 // 10

    for budget in (peak, peak * 6 // 10, tight):
        planned = train(make, budget=budget, seconds=1.0, **modes)
        compare(wanted, planned)
        check_budget(planned, budget)
    assert all(sum(record.moved.values()) > 0 for record in planned.records)


def test_control_sees_a_difference() -> None:
    """What the comparisons above rest on: another seed of dropout is another run."""

    def draw(index: int, run: Training) -> None:
        if index == 2:
            torch.rand(1)

    wanted = train(lambda: mlp("sgd"))
    other = train(lambda: mlp("sgd"), between=draw)
    with pytest.raises(AssertionError):
        compare(wanted, other)
