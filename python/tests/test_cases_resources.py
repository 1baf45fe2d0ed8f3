"""Cases of threads, host memory, failures and accounts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from case_oracle import ROOMY, batch, equal, loss_of, mlp, stepping, update
from parity import assert_equal, same, state_of
from torch import nn

import outsize
from outsize.bench.process import memory
from outsize.step import MOST_VARIANTS


# -- 27 -------------------------------------------------------------------------------------------
def test_case_27_the_number_of_threads_changes_in_mid_run() -> None:
    def before(m: nn.Module, o: torch.optim.Optimizer) -> dict[int, Any]:
        torch.set_num_threads(2)
        return {2: lambda: torch.set_num_threads(1), 4: lambda: torch.set_num_threads(2)}

    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        return update(o, m(x).square().mean())

    generator = torch.Generator().manual_seed(5)
    calls = [(torch.randn(4, 3, 32, 32, generator=generator),) for _ in range(5)]
    threads = torch.get_num_threads()
    try:
        runs = equal(
            stepping(
                body,
                lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)),
                calls=calls,
                before=before,
            )
        )
    finally:
        torch.set_num_threads(threads)
    assert any("threads" in line for line in runs["roomy"].said), runs["roomy"].said


# -- 28 -------------------------------------------------------------------------------------------
def test_case_28_many_image_sizes() -> None:
    torch.manual_seed(7)
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    said: list[str] = []

    @outsize.step(model, optimizer, budget=ROOMY, planner="keep", log=said.append)
    def step(x: torch.Tensor) -> torch.Tensor:
        return update(optimizer, model(x).square().mean())

    sizes = range(6, 6 + MOST_VARIANTS + 2)
    grown = []
    for _ in range(2):
        for size in sizes:
            step(torch.ones(1, 8, size, size))
        grown.append(memory()["anonymous"])
    assert step.captures == MOST_VARIANTS
    # The first call has no gradients at entry, so that its size is planned once more.
    assert sum("planning again" in line for line in said) >= 2 * len(sizes) - 1
    assert grown[1] - grown[0] < 8 << 20, grown
    step.close()


# -- 29 -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("where", ["forward", "second of three backward passes", "optimizer.step"])
def test_case_29_a_step_that_fails_is_retried_with_a_smaller_batch(where: str) -> None:
    def trained(planned: bool) -> tuple[list[Any], list[dict[str, Any]], int]:
        torch.manual_seed(7)
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        broken = False

        def fail(*_: Any) -> None:
            if broken:
                raise ValueError("the user's own")

        if where == "forward":
            model[0].register_forward_hook(fail)
        if where == "optimizer.step":
            optimizer.register_step_pre_hook(fail)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            for part in range(3):
                loss = loss_of(model, x)
                loss.backward()
                if part == 1 and where.startswith("second"):
                    fail()
            optimizer.step()
            return loss.detach()

        call: Any = step
        if planned:
            call = outsize.step(model, optimizer, budget=ROOMY, seconds=0.3, log=lambda line: None)(
                step
            )
        losses, states = [], []
        for k in range(5):
            broken = planned and k == 2
            if broken:
                before = state_of([model], [optimizer])
                with pytest.raises(ValueError, match="the user's own"):
                    call(batch(k))
                assert_equal(before, state_of([model], [optimizer]), "the failed call")
            broken = False
            losses.append(call(batch(k)[: 4 if k == 2 else 8]))
            states.append(state_of([model], [optimizer]))
        return losses, states, call.last.peak_bytes if planned else 0

    (plain, wanted, _), (planned, had, peak) = trained(False), trained(True)
    assert all(map(same, plain, planned))
    for index, (a, b) in enumerate(zip(wanted, had, strict=True)):
        assert_equal(a, b, f"step {index}")
    assert peak > 0


# -- 30 -------------------------------------------------------------------------------------------
class _Lora(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(1000, 1000, bias=False).requires_grad_(False)
        self.a = nn.Linear(1000, 8, bias=False)
        self.b = nn.Linear(8, 1000, bias=False)
        self.words = nn.Embedding(1000, 64).requires_grad_(False)
        self.head = nn.Linear(64, 1000, bias=False)
        self.head.weight = self.words.weight  # tied


def test_case_30_frozen_and_tied_weights_are_counted_once_and_never_written_back() -> None:
    torch.manual_seed(7)
    model = _Lora()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 0.01)

    @outsize.step(model, optimizer, budget="32MB", planner="swap-everything", log=lambda line: None)
    def step(ids: torch.Tensor) -> torch.Tensor:
        x = model.head(model.words(ids))
        loss = (model.frozen(x) + model.b(model.a(x))).square().mean()
        return update(optimizer, loss)

    for k in range(3):
        step(torch.arange(k, k + 2))
    graph = step.last_graph()
    sizes: dict[str, int] = {}
    for storage in graph["storages"]:
        if storage.get("persistent"):
            sizes[storage["role"]] = sizes.get(storage["role"], 0) + storage["bytes"]
    assert sizes["parameter"] == 4_000_000 + 64_000 + 256_000
    moments = 128_000
    assert sizes["optimizer_state"] == moments + 2 * 4  # and a counter each of a and b
    gradients = [s for s in graph["storages"] if s.get("name", "").startswith("grad:")]
    assert sum(s["bytes"] for s in gradients if s.get("exit")) == 64_000
    assert step.last is not None
    # Out goes what the step changes, in comes everything: the frozen ones are read, and dropped.
    assert step.last.moved["out"] < 4_000_000 < step.last.moved["in"]
    step.close()
