"""Ops in pieces: each kind of cut proved bit-equal by running it, and steps that fit only when split."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from one_op import one_op
from step_models import OPTIMIZERS, Training, gpt2, mlp, resnet, unet
from step_parity import check_budget, compare, plan_of, train

import outsize_core


def n(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes)


def several(*counts: int) -> list[torch.Tensor]:
    return [torch.randn(count) for count in counts]


def positive(*counts: int) -> list[torch.Tensor]:
    return [torch.rand(count) + 0.1 for count in counts]


def steps(count: int) -> list[torch.Tensor]:
    return [torch.tensor(3.0) for _ in range(count)]


COUNTS = (1000, 12, 4096, 77)
MANY = (65536, 1000, 12345)
TARGET = torch.tensor([3, -100, 7, 0, 9, -100, 2, 5] * 8)

POOLED = n(8, 4, 12, 12)
POOLED_FROM = torch.ops.aten.max_pool2d_with_indices(POOLED, [2, 2], [2, 2])[1]
_QUERIES = [n(4, 2, 16, 8) for _ in range(3)]
ATTENDED = [
    *_QUERIES,
    *torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*_QUERIES, 0.0, True),
]

# name -> (op, arguments, mutated arguments, kind, bounds to cut at)
CASES: dict[str, tuple[str, list[Any], tuple[int, ...], str, list[list[int]]]] = {
    "norms": ("_foreach_norm.Scalar", [several(*COUNTS)], (), "items", [[0, 1, 4], [0, 1, 2, 3, 4]]),
    "scaled": ("_foreach_mul_.Tensor", [several(*COUNTS), torch.tensor(0.7)], (0,), "items", [[0, 2, 4]]),
    "lerped": ("_foreach_lerp_.Scalar", [several(*COUNTS), several(*COUNTS), 0.1], (0,), "items", [[0, 1, 2, 3, 4]]),
    "roots": ("_foreach_sqrt.default", [positive(*COUNTS)], (), "items", [[0, 3, 4]]),
    "by numbers": ("_foreach_div_.ScalarList", [several(*COUNTS), [0.5, 3.0, 7.0, 9.0]], (0,), "items", [[0, 1, 3, 4]]),
    "fused adamw": (
        "_fused_adamw_.default",
        [several(*MANY), several(*MANY), several(*MANY), positive(*MANY), [], steps(3),
         1e-2, 0.9, 0.999, 0.1, 1e-8, False, False],
        (0, 1, 2, 3), "items", [[0, 1, 2, 3], [0, 2, 3]],
    ),
    "fused sgd": (
        "_fused_sgd_.default",
        [several(*MANY), several(*MANY), several(*MANY), 0.1, 0.9, 1e-2, 0.0, False, False, False],
        (0, 1, 2), "items", [[0, 1, 3]],
    ),
    "gelu": ("gelu.default", [n(3, 50, 67)], (), "elements", [[0, 64, 128, 10050], [0, 5056, 10050]]),
    "gelu backward": ("gelu_backward.default", [n(9, 999), n(9, 999)], (), "elements", [[0, 640, 8991]]),
    "tanh backward": ("tanh_backward.default", [n(9, 999), n(9, 999)], (), "elements", [[0, 6400, 8991]]),
    "in place": ("add_.Tensor", [n(77, 91), n(77, 91)], (0,), "elements", [[0, 3456, 7007]]),
    "by a tensor number": ("mul.Tensor", [n(77, 91), torch.tensor(0.3)], (), "elements", [[0, 3456, 7007]]),
    "channels last": ("sigmoid.default", [n(4, 6, 8, 8).to(memory_format=torch.channels_last)], (), "elements", [[0, 512, 1536]]),
    "copied": ("copy_.default", [n(512), torch.randn(512, dtype=torch.float64)], (0,), "elements", [[0, 192, 512]]),
    "masked sum": ("add.Tensor", [n(2, 4, 16, 16), n(16, 16)], (), "rows", [[0, 1, 3, 8], [0, 4, 8]]),
    "softmax": ("_softmax.default", [n(2, 8, 33), -1, False], (), "rows", [[0, 1, 5, 16]]),
    "safe softmax": ("_safe_softmax.default", [n(2, 8, 33), -1], (), "rows", [[0, 7, 16]]),
    "log softmax": ("_log_softmax.default", [n(64, 1000), 1, False], (), "rows", [[0, 1, 30, 64]]),
    "softmax backward": ("_softmax_backward_data.default", [n(16, 33), n(16, 33), -1, torch.float32], (), "rows", [[0, 3, 16]]),
    "log softmax backward": ("_log_softmax_backward_data.default", [n(64, 1000), n(64, 1000), 1, torch.float32], (), "rows", [[0, 1, 30, 64]]),
    "layer norm": ("native_layer_norm.default", [n(4, 16, 50), [50], n(50), n(50), 1e-5], (), "rows", [[0, 1, 20, 64]]),
    "product": ("mm.default", [n(256, 128), n(128, 192)], (), "rows", [[0, 128, 256]]),
    "product and bias": ("addmm.default", [n(192), n(256, 128), n(128, 192)], (), "rows", [[0, 128, 256]]),
    "products": ("bmm.default", [n(8, 32, 16), n(8, 16, 32)], (), "rows", [[0, 4, 8]]),
    "loss": ("nll_loss_forward.default", [n(64, 10), TARGET, None, 1, -100], (), "loss", [[0, 1, 30, 64], [0, 32, 64]]),
    "summed loss": ("nll_loss_forward.default", [n(64, 10), TARGET, None, 2, -100], (), "loss", [[0, 32, 64]]),
    "loss backward": (
        "nll_loss_backward.default", [torch.tensor(1.0), n(64, 10), TARGET, None, 1, -100, torch.tensor(48.0)],
        (), "rows", [[0, 1, 30, 64]],
    ),
    "embedding": ("embedding.default", [n(50, 12), torch.arange(40).reshape(4, 10)], (), "rows", [[0, 1, 25, 40]]),
    "convolution": ("convolution.default", [n(8, 4, 12, 12), n(6, 4, 3, 3), n(6), [1, 1], [1, 1], [1, 1], False, [0, 0], 1], (), "rows", [[0, 4, 8]]),
    "convolution's outputs": (
        "convolution_backward.default",
        [n(8, 6, 12, 12), n(8, 4, 12, 12), n(6, 4, 3, 3), [6], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]],
        (), "outputs", [[0, 1, 2, 3]],
    ),
    "products and a tensor": ("baddbmm.default", [n(8, 32, 16), n(8, 32, 24), n(8, 24, 16)], (), "rows", [[0, 4, 8]]),
    "average pooling": ("avg_pool2d.default", [n(8, 4, 12, 12), [2, 2], [2, 2]], (), "rows", [[0, 1, 8]]),
    "average pooling backward": (
        "avg_pool2d_backward.default",
        [n(8, 4, 6, 6), n(8, 4, 12, 12), [2, 2], [2, 2], [0, 0], False, True, None], (), "rows", [[0, 3, 8]],
    ),
    "pooling backward": (
        "max_pool2d_with_indices_backward.default",
        [n(8, 4, 6, 6), POOLED, [2, 2], [2, 2], [0, 0], [1, 1], False, POOLED_FROM], (), "rows", [[0, 1, 5, 8]],
    ),
    "nearest upsampling": ("upsample_nearest2d.default", [n(8, 4, 6, 6), [12, 12], None, None], (), "rows", [[0, 1, 8]]),
    "bilinear upsampling": ("upsample_bilinear2d.default", [n(8, 4, 6, 6), [12, 12], False, None, None], (), "rows", [[0, 1, 8]]),
    "attention backward": (
        "_scaled_dot_product_flash_attention_for_cpu_backward.default",
        [n(4, 2, 16, 8), *ATTENDED, 0.0, True], (), "rows", [[0, 1, 4]],
    ),
    "fused adam": (
        "_fused_adam_.default",
        [several(*MANY), several(*MANY), several(*MANY), positive(*MANY), positive(*MANY), steps(3),
         1e-2, 0.9, 0.999, 0.1, 1e-8, True, False],
        (0, 1, 2, 3, 4), "items", [[0, 1, 2, 3]],
    ),
    "pooling": ("max_pool2d_with_indices.default", [n(8, 4, 12, 12), [2, 2], [2, 2]], (), "rows", [[0, 1, 8]]),
    "attention": ("_scaled_dot_product_flash_attention_for_cpu.default", [n(4, 2, 16, 8), n(4, 2, 16, 8), n(4, 2, 16, 8), 0.0, True], (), "rows", [[0, 1, 4]]),
}  # fmt: skip


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("case", CASES)
def test_pieces_give_the_same_bits(case: str, threads: int) -> None:
    name, args, mutated, kind, cuts = CASES[case]
    graph = one_op(name, args, mutated)
    (finest,) = outsize_core.cuts_of(graph)
    assert finest["kind"] == kind
    for bounds in cuts:
        assert set(bounds) <= set(finest["bounds"])
        proof = outsize_core.prove_cut(graph, {**finest, "bounds": bounds}, {"use_cache": False})
        assert proof == {"equal": True, "why": ""}, f"{case} at {bounds}"
        pieces = json.loads(outsize_core.apply_cuts(graph, [{**finest, "bounds": bounds}]))
        made = [op for op in pieces["ops"] if op["name"] == f"aten.{name}"]
        # The loss itself runs once, on what its pieces picked.
        assert len(made) == (1 if kind == "loss" else len(bounds) - 1)


def test_every_rule_for_rows_is_tried() -> None:
    apart = {"aten.convolution_backward.default"}  # by images only once it is alone: the next test
    tried = {f"aten.{name}" for name, _, _, kind, _ in CASES.values() if kind == "rows"}
    assert set(outsize_core.row_ops()) <= tried | apart


def test_input_gradient_by_images_once_it_is_alone(threads: int) -> None:
    args = [
        n(8, 6, 12, 12),
        n(8, 4, 12, 12),
        n(6, 4, 3, 3),
        [6],
        [1, 1],
        [1, 1],
        [1, 1],
        False,
        [0, 0],
        1,
    ]
    both = one_op("convolution_backward.default", [*args, [True, True, False]])
    assert outsize_core.cuts_of(both)[0]["kind"] == "outputs"
    alone = one_op("convolution_backward.default", [*args, [True, False, False]])
    (cut,) = outsize_core.cuts_of(alone)
    assert (cut["kind"], cut["bounds"]) == ("rows", list(range(9)))
    cut["bounds"] = [0, 4, 8]
    assert outsize_core.prove_cut(alone, cut, {"use_cache": False})["equal"]


def test_thin_panels_of_a_product_are_found_to_differ() -> None:
    graph = one_op("mm.default", [n(12, 64), n(64, 64)])
    (cut,) = outsize_core.cuts_of(graph)
    proof = outsize_core.prove_cut(graph, {**cut, "bounds": list(range(13))}, {"use_cache": False})
    assert proof == {"equal": False, "why": "its bits differ when it runs in pieces"}


def test_proofs_are_kept_and_damaged_ones_made_again(tmp_path: Path) -> None:
    args = ("mm.default", [n(128, 96), n(96, 4096)])
    graph = one_op(*args)
    options = {"largest_bytes": 1 << 20, "least_piece_bytes": 1 << 10, "cache_dir": str(tmp_path)}
    first = outsize_core.split(graph, options)
    # Its result is wanted by nobody, so it may be made in pieces.
    assert first["proved"] > 0
    again = outsize_core.split(graph, options)
    assert (again["proved"], again["graph"]) == (0, first["graph"])
    kept = sorted((tmp_path / "proofs").iterdir())
    assert len(kept) == first["proved"]
    for file in kept:
        file.write_text(file.read_text()[:-9])
    assert outsize_core.split(graph, options)["proved"] == first["proved"]


def test_what_cannot_be_cut_is_refused() -> None:
    graph = one_op("cumsum.default", [n(64), 0])
    assert outsize_core.cuts_of(graph) == []
    with pytest.raises(outsize_core.BadInputError, match="can't be cut by rows"):
        outsize_core.apply_cuts(graph, [{"op": 0, "kind": "rows", "bounds": [0, 32, 64]}])
    with pytest.raises(outsize_core.BadInputError, match="no kind of cut"):
        outsize_core.prove_cut(graph, {"op": 0, "kind": "columns", "bounds": [0, 64]})
    with pytest.raises(outsize_core.BadInputError, match="largest_bytes"):
        outsize_core.split(graph, {})


# -- whole steps ------------------------------------------------------------------------------------


def wide_gpt2() -> Training:
    """A vocabulary that makes the loss the largest of all, and lists of parameters the next."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(3)
    config = GPT2Config(
        n_layer=1, n_embd=32, n_head=2, vocab_size=1536, n_positions=64,
        use_cache=False, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    optimizer = OPTIMIZERS["foreach"](model.parameters())

    def train_step(tokens: torch.Tensor) -> torch.Tensor:
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    generator = torch.Generator().manual_seed(4)
    batches = [(torch.randint(0, 1536, (4, 64), generator=generator),) for _ in range(3)]
    return Training(model, optimizer, train_step, batches)


def wide_mlp() -> Training:
    run = mlp("foreach", depth=2, width=192, batch=256)

    def clipped(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(run.model(x), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
        run.optimizer.step()
        run.optimizer.zero_grad()
        return loss

    run.step = clipped
    run.batches = run.batches[:3]
    return run


def large_unet() -> Training:
    run = unet("fused")
    generator = torch.Generator().manual_seed(1)
    images = [torch.randn(8, 1, 64, 64, generator=generator) for _ in range(6)]
    run.batches = list(zip(images[:3], images[3:], strict=True))
    return run


def large_resnet() -> Training:
    run = resnet("foreach")
    generator = torch.Generator().manual_seed(1)
    run.batches = [
        (torch.randn(8, 3, 48, 48, generator=generator), torch.arange(8)) for _ in range(3)
    ]
    return run


@pytest.mark.parametrize("make", [wide_gpt2, wide_mlp, large_unet, large_resnet])
def test_fits_below_the_largest_op(make: Any) -> None:
    run = make()
    plain = plan_of(run, budget="256MiB")
    # The floor of a step that is not split: one of its ops needs that much by itself.
    floors = [plain.prepare(*run.batches[0]).floor_bytes]
    plain(*run.batches[0])
    floors.append(plain.prepare(*run.batches[1]).floor_bytes)
    plain.close()
    # Both the first step, which makes the optimizer's state, and the later ones.
    budget = min(floors) * 9 // 10
    log = train(make, budget=budget)
    assert any("split" in line for line in log.said)
    check_budget(log, budget)
    compare(train(make), log)


def test_a_step_that_fits_is_not_split() -> None:
    log = train(lambda: gpt2("sdpa", "foreach", True), budget="64MiB")
    assert not any("split" in line for line in log.said)


def test_ids_of_a_capture_stay() -> None:
    graph = json.loads(one_op("_log_softmax.default", [n(64, 1000), 1, False]))
    after = json.loads(
        outsize_core.apply_cuts(
            json.dumps(graph), [{"op": 0, "kind": "rows", "bounds": [0, 16, 64]}]
        )
    )
    for key in ("sizes", "strides", "storage", "dtype"):
        assert [v[key] for v in after["values"][: len(graph["values"])]] == [
            v[key] for v in graph["values"]
        ]
