"""Scalar functions of the core against Python's own, bit for bit."""

from __future__ import annotations

import json
import math
import operator
import random
import struct
from collections.abc import Callable

import pytest
import torch
from core_steps import Run, StepWriter, make_plan, measured

import outsize_core

UNARY: dict[str, Callable] = {
    "neg": operator.neg,
    "abs": abs,
    "sqrt": math.sqrt,
    "float": float,
    "int": int,
    "not": operator.not_,
}
BINARY: dict[str, Callable] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "min": min,
    "max": max,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
EDGES = [0, 1, -1, 2, 3, -7, True, False, 0.0, -0.0, 0.5, -2.5, 1e-308, 1e300, 2**31 + 1, 0.999**7]


def bits(value: object) -> object:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return value


@pytest.fixture(scope="module")
def evaluate() -> Callable[[str, list], object]:
    """Runs one function on the core; raises the core's error where it has one."""
    runs: dict[str, tuple[Run, int]] = {}

    def run(function: str, args: list) -> object:
        if function not in runs:
            step = StepWriter()
            w = step.parameter("w", torch.ones(1))
            numbers = [step.number(f"x{k}", 0.0) for k in range(len(args))]
            result = step.function(function, 0.0, *numbers)
            step.call("aten.mul_.Tensor", w, w)
            text = json.loads(step.graph())
            for scalar in text["scalars"]:
                scalar.pop("present")
            graph, profile = json.dumps(text), measured(step)[1]
            plan = make_plan(graph, profile, "keep", 4096)
            runs[function] = (Run(graph, profile, plan, {"w": torch.ones(1)}), result.index)
        prepared, index = runs[function]
        given = {f"x{k}": value for k, value in enumerate(args)}
        return prepared.step(None, **given)["scalars"][index]

    return run


def agree(evaluate: Callable, function: str, python: Callable, args: list) -> None:
    try:
        wanted = python(*args)
    except (ArithmeticError, ValueError):
        with pytest.raises(outsize_core.DeviceError):
            evaluate(function, args)
        return
    if isinstance(wanted, complex) or (isinstance(wanted, int) and not -(2**63) <= wanted < 2**63):
        with pytest.raises(outsize_core.DeviceError):
            evaluate(function, args)
        return
    had = evaluate(function, args)
    assert type(had) is type(wanted), (function, args, had, wanted)
    assert bits(had) == bits(wanted), (function, args, had, wanted)


@pytest.mark.parametrize("function", UNARY)
def test_functions_of_one_number(evaluate, function):
    generator = random.Random(1)
    for value in EDGES + [generator.uniform(-1e6, 1e6) for _ in range(50)]:
        agree(evaluate, function, UNARY[function], [value])


@pytest.mark.parametrize("function", BINARY)
def test_functions_of_two_numbers(evaluate, function):
    generator = random.Random(2)
    pairs = [[a, b] for a in EDGES for b in EDGES]
    pairs += [[generator.uniform(-3, 3), generator.uniform(-3, 3)] for _ in range(50)]
    pairs += [[generator.randint(-99, 99), generator.randint(-9, 9)] for _ in range(50)]
    pairs += [[generator.getrandbits(62), generator.getrandbits(40) + 1] for _ in range(20)]
    if function == "pow":  # of large integers Python would compute every digit
        pairs = [[a, b] for a, b in pairs if isinstance(a, float) or abs(b) < 200]
    for pair in pairs:
        agree(evaluate, function, BINARY[function], pair)


def test_the_beta_of_a_thousand_steps(evaluate):
    for step in range(1, 1001):
        agree(evaluate, "pow", operator.pow, [0.999, float(step)])
