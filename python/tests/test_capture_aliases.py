"""In-place writes, aliases, hooks, several passes: captured steps leave eager's bits everywhere."""

from __future__ import annotations

from typing import Any

import parity
import torch
from case_oracle import loss_of, mlp
from test_capture_cases import BATCHES, make_with, plain, refused
from torch import nn

F = nn.functional


def test_views_of_one_batch_storage() -> None:
    def body(m: Any, o: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        return plain(m, o, (m(x) - y).square().mean())

    calls = []
    for k in range(4):
        base = torch.randn(40, 16, generator=torch.Generator().manual_seed(k))
        calls.append((base[10:18], base[11:19]))
    driver = parity.run(make_with(body), calls)
    storages = driver.captures[0].graph["storages"]
    assert [s["bytes"] for s in storages if s["role"] == "input"] == [9 * 16 * 4]


def test_outputs_of_every_kind() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        h = m(x)
        loss = plain(m, o, (h - x).square().mean())
        return {
            "x": x,
            "flat": h.detach().view(-1),
            "h": h,
            "row": h[0],
            "in place": x.mul_(2),
            "weight": m[0].weight,
            "loss": loss,
            "none": None,
            "text": "kept",
        }

    driver = parity.run(make_with(body), BATCHES)
    kinds = [output.kind for output in driver.captures[-1].outputs]
    assert kinds.count("argument") == 2 and kinds.count("object") == 3


def test_accumulator_and_closure_tensors() -> None:
    def make() -> parity.Made:
        m = mlp()
        o = torch.optim.SGD(m.parameters(), 0.1)
        total, scale = torch.zeros(()), torch.full((16,), 0.5)

        def step(x: torch.Tensor) -> Any:
            loss = plain(m, o, loss_of(m, x * scale))
            total.add_(loss)
            return loss, total.clone()

        return [m], [o], step

    driver = parity.run(make, BATCHES)
    names = {s.get("name"): s["role"] for s in driver.captures[-1].graph["storages"]}
    assert names["constant:total"] == "buffer" and names["constant:scale"] == "constant"


def test_gradient_penalty_and_complex() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        x = x.clone().requires_grad_()
        h = m(x)
        (g,) = torch.autograd.grad(h.sum(), x, create_graph=True)
        f = torch.fft.rfft(h).conj()
        loss = g.square().mean() + (f * f.conj()).real.mean() + f.imag.abs().mean()
        return plain(m, o, loss)

    parity.run(make_with(body), BATCHES)


def test_odd_tensors() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        row = m(x)[:1]
        wide = row.expand(64, 16)
        stepped = m(x)[:, ::2]
        shifted = m(x)[1:]
        square = m[0].weight[:16, :16]
        loss = wide.square().mean() + stepped.sin().mean() + (shifted * shifted).mean()
        loss = loss + (square @ square.t()).square().mean() + torch.empty(0).sum()
        mask = torch.empty(8, dtype=torch.bool)
        mask.fill_(False)
        mask[3] = True
        return plain(m, o, loss + torch.where(mask[:, None], x, 0).mean())

    parity.run(make_with(body), BATCHES)


def test_sparse_gradients_are_refused() -> None:
    def body(m: Any, o: Any, ids: torch.Tensor) -> Any:
        return plain(m, o, m(ids).square().mean())

    refused(
        make_with(body, lambda: nn.Embedding(50, 8, sparse=True)),
        (torch.tensor([1, 2, 3]),),
        "sparse",
    )


def test_autocast_and_lora() -> None:
    class Lora(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(16, 16)
            self.base.requires_grad_(False)
            self.a, self.b = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + self.b(self.a(x))

    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            loss = (m(x) + m(x * 2) - x).square().mean()
        return plain(m, o, loss)

    driver = parity.run(
        make_with(
            body,
            Lora,
            lambda p: torch.optim.AdamW([q for q in p if q.requires_grad], 0.01),
        ),
        BATCHES,
    )
    graph = driver.captures[-1].graph
    written = {s for op in graph["ops"] for s, _, _ in op["mutates"]}
    frozen = [i for i, s in enumerate(graph["storages"]) if s.get("name") == "param:base.weight"]
    assert frozen and not written & set(frozen)


def test_gradient_scaler_with_a_fused_optimizer() -> None:
    def make() -> parity.Made:
        m = mlp()
        o = torch.optim.AdamW(m.parameters(), 0.01, fused=True)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(torch.zeros(()))  # makes its scale: a step must not

        def step(x: torch.Tensor) -> Any:
            with torch.autocast("cpu", torch.float16):
                loss = loss_of(m, x)
            scaler.scale(loss).backward()
            scaler.step(o)
            scaler.update()
            o.zero_grad()
            return loss.detach(), scaler._scale.clone()

        return [m], [o], step

    assert len(parity.run(make, BATCHES).captures) == 2


def test_optimizers_that_branch_on_tensors_are_refused() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        def closure() -> torch.Tensor:
            o.zero_grad()
            loss = loss_of(m, x)
            loss.backward()
            return loss

        return o.step(closure)

    refused(make_with(body, optimizer=lambda p: torch.optim.LBFGS(p)), BATCHES[0], ".item()")
