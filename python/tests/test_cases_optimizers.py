"""Cases of hooks, optimizers, and odd steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from case_oracle import BATCHES, Subject, batch, equal, loss_of, mlp, refused, stepping, update
from torch import nn
from torch.utils.checkpoint import checkpoint


def _fused(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 0.01, fused=True)


def _plain(m: Any, o: Any, x: torch.Tensor) -> Any:
    return update(o, loss_of(m, x))


# -- 17 -------------------------------------------------------------------------------------------
def _steps_in_backward() -> Subject:
    m = nn.Sequential(nn.Linear(16, 16, bias=False), nn.Tanh(), nn.Linear(16, 16))
    m[2].weight = m[0].weight
    optimizers = {p: torch.optim.SGD([p], 0.05, momentum=0.9) for p in m.parameters()}

    def arrived(p: torch.Tensor) -> None:
        optimizers[p].step()  # type: ignore[index]
        optimizers[p].zero_grad()  # type: ignore[index]

    for p in m.parameters():
        p.register_post_accumulate_grad_hook(arrived)

    def step(x: torch.Tensor) -> Any:
        total = torch.zeros(())
        for part in x.chunk(4):
            loss = loss_of(m, part)
            loss.backward()
            total += loss.detach()
        return total

    return Subject([m], list(optimizers.values()), step, BATCHES)


def test_case_17_optimizers_that_step_as_gradients_arrive() -> None:
    runs = equal(_steps_in_backward)
    assert all(
        value is None
        for name, value in runs["roomy"].states[-1].items()
        if name.startswith("grad ")
    )


# -- 18 -------------------------------------------------------------------------------------------
def _resets(kind: str) -> Callable[[], Subject]:
    def before(m: nn.Module, o: torch.optim.Optimizer) -> dict[int, Callable[[], None]]:
        def reset() -> None:
            for p in m.parameters():
                if kind == "deleted":
                    del o.state[p]
                elif kind == "replaced":
                    o.state[p]["exp_avg"] = torch.zeros_like(p)
                else:
                    o.state[p]["exp_avg"].zero_()

        return {3: reset}

    return stepping(_plain, optimizer=_fused, before=before)


@pytest.mark.parametrize("kind", ["deleted", "replaced", "zeroed"])
def test_case_18_moments_thrown_away_in_mid_run(kind: str) -> None:
    runs = equal(_resets(kind))
    if kind == "deleted":
        # A first step again: as much is swapped as in the first one, and peaks hold (see `equal`).
        first, again = (runs["swapped"].records[k] for k in (0, 3))
        assert again.swapped["optimizer_state"] == first.swapped["optimizer_state"]


# -- 19 -------------------------------------------------------------------------------------------
class _Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])


@pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param(lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.5), id="adamw"),
        pytest.param(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), id="momentum"),
    ],
)
def test_case_19_experts_without_gradients(optimizer: Any) -> None:
    def body(m: Any, o: Any, x: torch.Tensor, which: int, to_none: bool) -> Any:
        o.zero_grad(set_to_none=to_none)
        loss = (m.experts[which](x) - x).square().mean()
        loss.backward()
        o.step()
        return loss.detach()

    calls = [(batch(k), k % 2, k >= 3) for k in range(5)]
    runs = equal(stepping(body, _Experts, optimizer, calls))
    states = runs["roomy"].states
    kept, moved = "param experts.1.weight", "param experts.0.weight"
    assert torch.equal(states[3][moved], states[2][moved])  # None: its bits stay
    assert not torch.equal(states[1][moved], states[0][moved])  # zeros: it moves
    assert not torch.equal(states[3][kept], states[2][kept])


# -- 20 -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("closure", [False, True], ids=["straight", "closure"])
def test_case_20_weights_moved_for_a_second_pass(closure: bool) -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        def passes() -> torch.Tensor:
            o.zero_grad()
            loss_of(m, x).backward()
            with torch.no_grad():
                norm = torch.stack([p.grad.norm() for p in m.parameters()]).norm()
                moves = [p.grad * (0.05 / (norm + 1e-12)) for p in m.parameters()]
                for p, move in zip(m.parameters(), moves, strict=True):
                    p.add_(move)
            o.zero_grad()
            loss = loss_of(m, x)
            loss.backward()
            with torch.no_grad():
                for p, move in zip(m.parameters(), moves, strict=True):
                    p.sub_(move)
            return loss.detach()

        if closure:
            with torch.enable_grad():
                return o.step(passes)
        loss = passes()
        o.step()
        return loss

    equal(
        stepping(body, optimizer=lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), calls=BATCHES[:3])
    )


# -- 21 -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16], ids=str)
def test_case_21_loading_chooses_the_dtype_of_moments(weights: torch.dtype) -> None:
    moments = torch.bfloat16 if weights == torch.float32 else torch.float32

    def before(m: nn.Module, o: torch.optim.Optimizer) -> dict[int, Callable[[], None]]:
        def reload() -> None:
            for p in m.parameters():
                o.state[p]["exp_avg"] = o.state[p]["exp_avg"].to(moments)
            o.load_state_dict(o.state_dict())

        return {3: reload}

    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        return update(o, loss_of(m, x.to(weights)))

    make = stepping(
        body, lambda: mlp().to(weights), lambda p: torch.optim.AdamW(p, 0.01), before=before
    )
    runs = equal(make)
    state = runs["roomy"].states[-1]["state:exp_avg:0.weight"]
    assert state.dtype == weights


# -- 22 -------------------------------------------------------------------------------------------
def _layer(dropout: bool) -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.Tanh(), *[nn.Dropout(0.1)] * dropout)


@pytest.mark.parametrize("reentrant", [False, True], ids=["not reentrant", "reentrant"])
def test_case_22_one_layer_under_checkpoint_six_times(reentrant: bool) -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        h = m[0](x)
        for _ in range(6):
            h = checkpoint(m[1], h, use_reentrant=reentrant)
        return update(o, (h - x).square().mean())

    def model(dropout: bool) -> nn.Module:
        return nn.Sequential(nn.Linear(16, 16), _layer(dropout))

    equal(stepping(body, lambda: model(False), calls=BATCHES[:3]))
    refused(stepping(body, lambda: model(True)), "checkpoint", "remove")
