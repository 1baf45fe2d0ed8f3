"""Every pointwise op of the split's table in pieces: the same bits as whole, whatever the operands hold."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from one_op import Graph, bytes_in, called, one_op, run_by_hand

import outsize_core

FLOATS = (torch.float32, torch.bfloat16, torch.float64)
DTYPES = (*FLOATS, torch.int64, torch.int8, torch.bool)
# Those that every op takes; the others where PyTorch does.
TAKEN = {"bitwise_and": (torch.int64, torch.bool), "bitwise_or": (torch.int64, torch.bool)}
TAKEN["bitwise_not"] = TAKEN["bitwise_or"]

# What an argument may be, by its name, where it is no tensor.
WORDS: dict[str, list[Any]] = {
    "approximate": ["none", "tanh"],
    "rounding_mode": [None, "floor", "trunc"],
    "dtype": [torch.float32, torch.bfloat16, torch.int64, torch.bool],
    "decimals": [2],
    "self_is_result": [False],
    "is_result": [False, True],
    "non_blocking": [False],
    "scale": [1.25],
}
NUMBERS = {"exponent": [2.0, 0.37], "min": [-0.5], "max": [0.75], "min_val": [-0.5], "max_val": [0.75]}  # fmt: skip
# Half the operands of `where` and `masked_fill` say which elements, the others what.
MASKS = ("condition", "mask")

# Copies its operand's storage as a whole, so a piece's result would lie within a copy of all.
NOT_CUT = {"copy.default"}

# How the first tensor and the others lie, and how an op on them is cut.
LAYOUTS: dict[str, tuple[Callable[[int], tuple[int, ...]], str]] = {
    "alike": (lambda index: (61, 83), "elements"),
    "numbers": (lambda index: (61, 83) if index == 0 else (), "elements"),
    "last": (lambda index: (4, 13, 67) if index == 0 else (67,), "rows"),
    "first": (lambda index: (16, 3, 67) if index == 0 else (16, 1, 1), "rows"),
}


def overloads(name: str) -> Iterator[str]:
    """The op's overloads that make or change one tensor, in place or not."""
    known = set(torch._C._dispatch_get_all_op_names())
    for packet in (name, f"{name}_"):
        if not hasattr(torch.ops.aten, packet):
            continue
        for overload in getattr(torch.ops.aten, packet).overloads():
            schema = getattr(getattr(torch.ops.aten, packet), overload)._schema
            full = (
                schema.name if not schema.overload_name else f"{schema.name}.{schema.overload_name}"
            )
            if full not in known or any(a.is_out for a in schema.arguments):
                continue
            if [str(result.type) for result in schema.returns] == ["Tensor"]:
                yield f"{packet}.{overload}"


def schema_of(name: str) -> Any:
    packet, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)._schema


def numbers(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Of many sizes, and the numbers that are special."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not dtype.is_floating_point:
        return torch.randint(1, 100, shape, generator=generator).to(dtype)
    scale = 2.0 ** torch.randint(-9, 4, shape, generator=generator)
    made = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1.0, -1.0, 1e-40, 1e4])
    if made.numel() > 1:
        made.view(-1)[seed * 7 :: 29] = special.repeat(made.numel())[
            : made.view(-1)[seed * 7 :: 29].numel()
        ].double()
    return made.to(dtype)


def argument_choices(schema: Any, dtype: torch.dtype) -> Iterator[list[Any]]:
    """Lists of arguments with `...` in place of the tensors."""

    def choices(argument: Any) -> list[Any]:
        kind = str(argument.type).removeprefix("Optional[").removesuffix("]")
        if kind == "Tensor":
            return [...]
        if argument.name in WORDS:
            return WORDS[argument.name]
        if kind == "number":
            whole = [True] if dtype == torch.bool else [2]
            return NUMBERS.get(argument.name, [0.7]) if dtype.is_floating_point else whole
        return [argument.default_value]

    yield from (list(given) for given in itertools.product(*map(choices, schema.arguments)))


def with_tensors(schema: Any, given: list[Any], layout: str, dtype: torch.dtype) -> list[Any]:
    shape, _ = LAYOUTS[layout]
    index = itertools.count()
    made = []
    for argument, item in zip(schema.arguments, given):
        if item is ...:
            at = next(index)
            kind = torch.bool if argument.name in MASKS else dtype
            item = numbers(shape(at), kind, seed=at)
        made.append(item)
    return made


def copies(given: list[Any]) -> list[Any]:
    return [item.clone() if isinstance(item, torch.Tensor) else item for item in given]


def graph_of(name: str, given: list[Any]) -> str | None:
    """None: PyTorch does not take these."""
    written = [i for i, a in enumerate(schema_of(name).arguments) if a.is_write]
    try:
        return one_op(name, copies(given), written)
    except (RuntimeError, NotImplementedError, TypeError):
        return None


def check_pieces(graph_text: str, kind: str, given: list[Any], what: str) -> None:
    (finest,) = outsize_core.cuts_of(graph_text)
    assert finest["kind"] == kind, what
    # Small pieces and large ones, none of them a single row.
    at = finest["bounds"] if kind == "elements" else finest["bounds"][::2]
    cut = {**finest, "bounds": sorted({*at[:2], at[len(at) // 2], at[-2], finest["bounds"][-1]})}
    assert len(cut["bounds"]) >= (5 if len(at) > 5 else 3), what
    proof = outsize_core.prove_cut(graph_text, cut, {"use_cache": False, "runs": 1})
    assert proof == {"equal": True, "why": ""}, what
    graph: Graph = json.loads(graph_text)
    pieces: Graph = json.loads(outsize_core.apply_cuts(graph_text, [cut]))
    assert len(pieces["ops"]) == len(cut["bounds"]) - 1
    tensors = [item for item in given if isinstance(item, torch.Tensor)]
    whole, parts = run_by_hand(graph, tensors), run_by_hand(pieces, tensors)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts)), what


@pytest.mark.parametrize("op", outsize_core.pointwise_ops())
def test_pieces_give_the_same_bits(op: str) -> None:
    tried: dict[str, set[torch.dtype]] = {}
    for name, dtype in itertools.product(sorted({*overloads(op)} - NOT_CUT), DTYPES):
        schema = schema_of(name)
        for choice, layout in itertools.product(list(argument_choices(schema, dtype)), LAYOUTS):
            if layout != "alike" and choice.count(...) < 2:
                continue
            given = with_tensors(schema, choice, layout, dtype)
            graph = graph_of(name, given)
            if graph is None:
                continue
            check_pieces(graph, LAYOUTS[layout][1], given, f"{name} {choice} {dtype} {layout}")
            tried.setdefault(name, set()).add(dtype)
    for name, dtypes in tried.items():
        assert dtypes >= set(TAKEN.get(op, FLOATS)), name
    assert tried.keys() == set(overloads(op)) - NOT_CUT


def test_what_copies_its_storage_is_not_cut() -> None:
    for name in NOT_CUT:
        assert outsize_core.cuts_of(one_op(name, [torch.ones(256), torch.zeros(256)])) == []


def test_a_single_element_is_refused() -> None:
    graph = one_op("div.Tensor", [torch.randn(65), torch.randn(65)])
    (cut,) = outsize_core.cuts_of(graph)
    assert cut["bounds"] == [0, 64, 65]
    proof = outsize_core.prove_cut(graph, cut, {"use_cache": False})
    assert not proof["equal"] and "one element" in proof["why"]


# -- operands that tell ------------------------------------------------------------------------------

# More than one thread works on these, and the border between two is in the middle of a vector.
LARGE = 70_003
BOUNDS = [0, 64, 640, 35_008, 50_048, LARGE]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return bytes_in(tensor).view(tensor.numel(), -1)


def in_pieces(
    call: Callable[..., torch.Tensor], tensors: list[torch.Tensor], bounds: list[int]
) -> torch.Tensor:
    return torch.cat(
        [call(*(t[a:b].clone() for t in tensors)) for a, b in itertools.pairwise(bounds)]
    )


def telling(
    call: Callable[..., torch.Tensor], count: int, dtype: torch.dtype
) -> list[torch.Tensor] | None:
    """Numbers for which the op gives one result among vectors and another in pieces too short for them."""
    length = 3 * 500
    tensors = [numbers((length,), dtype, seed=20 + i) for i in range(count)]
    whole, parts = call(*tensors), in_pieces(call, tensors, list(range(0, length + 1, 3)))
    differ = (bits(whole) != bits(parts)).any(1) & ~whole.isnan()
    places = differ.nonzero()
    return [t[places[0, 0]] for t in tensors] if len(places) else None


def call_of(
    name: str, choice: list[Any]
) -> tuple[Callable[..., torch.Tensor], Callable[..., list[Any]]]:
    """The op as a function of its tensors, and its arguments as one."""
    packet, overload = name.split(".")
    op = getattr(getattr(torch.ops.aten, packet), overload)

    def filled(*tensors: torch.Tensor) -> list[Any]:
        left = iter(tensors)
        return [next(left) if item is ... else item for item in choice]

    def call(*tensors: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = called(op, filled(*tensors))
        return made

    return call, filled


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


# `where` and `masked_fill` copy, `fill` takes a number.
@pytest.mark.parametrize(
    "op",
    sorted(
        {*outsize_core.pointwise_ops()}
        - TAKEN.keys()
        - {"where", "masked_fill", "fill", "native_dropout_backward"}
    ),
)
def test_proofs_do_not_depend_on_luck(op: str, two_threads: None) -> None:
    for name, dtype in itertools.product(sorted({*overloads(op)} - NOT_CUT), FLOATS):
        schema = schema_of(name)
        if "_." in name:
            continue
        for choice in argument_choices(schema, dtype):
            call, filled = call_of(name, choice)
            found = telling(call, choice.count(...), dtype)
            if found is None:
                continue
            tensors = [number.expand(LARGE).clone() for number in found]
            same = torch.equal(bits(call(*tensors)), bits(in_pieces(call, tensors, BOUNDS)))
            graph = one_op(name, filled(*tensors))
            (cut,) = outsize_core.cuts_of(graph)
            proof = outsize_core.prove_cut(graph, {**cut, "bounds": BOUNDS}, {"use_cache": False})
            # A proof may be too careful: other numbers may tell more.
            assert same or not proof["equal"], f"{name} {choice} {dtype}"
