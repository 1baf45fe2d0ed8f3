"""In-place writes, aliases, hooks, several passes: captured steps leave eager's bits everywhere."""

from __future__ import annotations

from typing import Any

import parity
import pytest
import torch
from test_capture_cases import BATCHES, batch, loss_of, make_with, mlp, plain, refused
from torch import nn
from torch.utils.checkpoint import checkpoint

F = nn.functional


def test_writes_into_the_batch() -> None:
    def body(m: Any, o: Any, x: torch.Tensor, labels: torch.Tensor) -> Any:
        labels.view(-1).masked_fill_(torch.rand(8) < 0.3, -100)
        x.mul_(0.9)
        return plain(m, o, F.cross_entropy(m(x), labels, ignore_index=-100))

    g = torch.Generator().manual_seed(1)
    calls = [(batch(k), torch.randint(0, 5, (8,), generator=g)) for k in range(4)]
    parity.run(make_with(body, lambda: nn.Linear(16, 5)), calls)


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


def test_detached_alias_before_a_write() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        h = m(x) * 1
        d = h.detach()
        h.mul_(2)
        return plain(m, o, (h - 0.5 * d).square().mean())

    parity.run(make_with(body), BATCHES)


def test_views_of_parameters() -> None:
    def make() -> parity.Made:
        m = mlp()
        views = [p.detach().view(-1) for p in m.parameters()]

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = loss_of(m, x)
            gradients = torch.autograd.grad(loss, list(m.parameters()))
            with torch.no_grad():
                for view, gradient in zip(views, gradients):
                    for begin in range(0, view.numel(), 100):
                        g = gradient.reshape(-1)[begin : begin + 100]
                        view[begin : begin + 100].sub_(g / (g.norm() + 1e-6), alpha=0.1)
            return loss.detach()

        return [m], [], step

    assert len(parity.run(make, BATCHES).captures) == 1


def test_spectral_norm() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        return plain(m, o, m(x).mean() - m(0.5 * x + 1).mean())

    parity.run(
        make_with(body, lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(16, 1))), BATCHES
    )


def test_hook_that_writes_into_its_gradient() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.ones(16)), nn.Parameter(torch.ones(16))
            self.a.register_hook(lambda g: g.mul_(0.5))

    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        return plain(m, o, ((m.a + m.b).square() * x).sum())

    parity.run(make_with(body, Two, lambda p: torch.optim.SGD(p, 1e-3)), BATCHES)


class KeepsWeight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.w = w
        return x @ w

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (x,) = ctx.saved_tensors
        return grads[0] @ ctx.w.t(), x.t() @ grads[0]


class WritesBuffer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        ctx.buffer = buffer
        ctx.save_for_backward(x)
        return x * buffer

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        out = grads[0] * ctx.buffer
        ctx.buffer.mul_(0.9).add_(0.1 * ctx.saved_tensors[0].mean(0))
        return out, None


def test_custom_functions() -> None:
    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList([torch.eye(16) for _ in range(3)])
            self.register_buffer("buffer", torch.ones(16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for w in self.weights:
                x = KeepsWeight.apply(x, w)
            return WritesBuffer.apply(x, self.buffer)

    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        return plain(m, o, (m(x) - 1).square().mean())

    parity.run(make_with(body, Custom), BATCHES)


def test_optimizers_in_backward() -> None:
    def make() -> parity.Made:
        m = nn.Sequential(nn.Linear(16, 16, bias=False), nn.Tanh(), nn.Linear(16, 16))
        m[2].weight = m[0].weight
        optimizers = {p: torch.optim.SGD([p], 0.05, momentum=0.9) for p in m.parameters()}

        def update(p: torch.Tensor) -> None:
            optimizers[p].step()  # type: ignore[index]
            optimizers[p].zero_grad()  # type: ignore[index]

        for p in m.parameters():
            p.register_post_accumulate_grad_hook(update)

        def step(x: torch.Tensor) -> Any:
            total = torch.zeros(())
            for part in x.chunk(4):
                loss = loss_of(m, part)
                loss.backward()
                total += loss.detach()
            return total

        return [m], list(optimizers.values()), step

    assert len(parity.run(make, BATCHES).captures) == 2


def test_state_deleted_and_replaced() -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        return plain(m, o, loss_of(m, x))

    def between(index: int, made: parity.Made) -> None:
        (o,) = made[1]
        p = o.param_groups[0]["params"][0]
        if index == 2:
            o.state.clear()
        if index == 3:
            o.state[p]["exp_avg"] = torch.zeros_like(p)
        if index == 4:
            o.state[p]["exp_avg_sq"].zero_()
        if index == 5:
            o.load_state_dict(o.state_dict())

    parity.run(
        make_with(body, optimizer=lambda p: torch.optim.AdamW(p, 0.01, fused=True)),
        BATCHES,
        between,
    )


def test_experts_in_turn_and_zero_gradients() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])

    def body(m: Any, o: Any, x: torch.Tensor, which: int, to_none: bool) -> Any:
        o.zero_grad(set_to_none=to_none)
        loss = (m.experts[which](x) - x).square().mean()
        loss.backward()
        o.step()
        return loss.detach()

    calls = [(batch(k), k % 2, k >= 4) for k in range(8)]
    for optimizer in (
        lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.5),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    ):
        parity.run(make_with(body, Experts, optimizer), calls)


@pytest.mark.parametrize("closure", [False, True])
def test_two_passes(closure: bool) -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        def passes() -> torch.Tensor:
            o.zero_grad()
            loss_of(m, x).backward()
            with torch.no_grad():
                norm = torch.stack([p.grad.norm() for p in m.parameters()]).norm()
                moves = [p.grad * (0.05 / (norm + 1e-12)) for p in m.parameters()]
                for p, move in zip(m.parameters(), moves):
                    p.add_(move)
            o.zero_grad()
            loss = loss_of(m, x)
            loss.backward()
            with torch.no_grad():
                for p, move in zip(m.parameters(), moves):
                    p.sub_(move)
            return loss.detach()

        if closure:
            with torch.enable_grad():
                return o.step(passes)
        loss = passes()
        o.step()
        return loss

    parity.run(make_with(body, optimizer=lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)), BATCHES)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_without_random_numbers(reentrant: bool) -> None:
    def body(m: Any, o: Any, x: torch.Tensor) -> Any:
        h = m[0](x)
        for _ in range(3):
            h = checkpoint(m[1], h, use_reentrant=reentrant)
        return plain(m, o, (h - x).square().mean())

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(16, 16), nn.Sequential(nn.Linear(16, 16), nn.Tanh()))

    parity.run(make_with(body, model), BATCHES)


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
