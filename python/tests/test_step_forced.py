"""Forced modes: everything swapped, everything recomputed, at budgets that ask for neither; the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from step_models import Training, gpt2, mlp, resnet, unet
from step_parity import check_budget, compare, sizes_of, train

MODELS: dict[str, Callable[[], Training]] = {
    "gpt2": lambda: gpt2("sdpa", "adamw", scheduler_inside=True),
    "resnet": lambda: resnet("momentum"),
    "mlp": lambda: mlp("foreach"),
    "unet": lambda: unet("adamw"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("planner", ["swap-everything", "recompute-everything"])
def test_forced_modes_keep_the_bits(name: str, planner: str, tmp_path: Any) -> None:
    make = MODELS[name]
    floor, peak = sizes_of(make)
    wanted = train(make)
    for options in ({"budget": peak}, {"budget": floor * 11 // 10, "disk": tmp_path}):
        had = train(make, planner=planner, poison=True, clock=name == "mlp", **options)
        compare(wanted, had)
        check_budget(had, options["budget"])
        for record in had.records:
            if planner == "swap-everything":
                assert record.recomputed_ops == 0
                assert all(
                    record.forecast.swapped.get(role, 0) > 0
                    for role in ("parameter", "gradient", "optimizer_state")
                )
            else:
                assert record.recomputed_ops > 0
