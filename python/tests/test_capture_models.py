"""Captured steps replay to eager's bits, and fake and real captures list the same ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import parity
import pytest
import torch
from torch import nn

from outsize.capture import capture, op_names, tables
from outsize.errors import CaptureError

F = nn.functional


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 16))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.norm(self.stem(x)), inplace=True)
        out = self.norm2(self.conv(h))
        out += h
        return self.head(F.relu(out).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.mid = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.out = nn.Conv2d(11, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.silu(self.norm(self.mid(F.silu(self.down(x)))))
        return self.out(torch.cat([self.up(h), x], 1))


class Tied(nn.Module):
    """Embedding, attention and a head that shares the embedding's weight."""

    def __init__(self, attention: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.qkv = nn.Linear(16, 48)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight
        self.attention = attention

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        h = self.embed(ids)
        q, k, v = (
            t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(self.norm(h)).chunk(3, -1)
        )
        if self.attention == "sdpa":
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1)
        else:
            w = (q @ k.transpose(-1, -2)) / 8**0.5
            mask = torch.ones(w.size(-2), w.size(-1), dtype=torch.bool).tril()
            a = F.dropout(w.masked_fill(~mask, float("-inf")).softmax(-1), 0.1) @ v
        return self.head(h + a.transpose(1, 2).flatten(-2))


def images(count: int) -> list[tuple[Any, ...]]:
    g = torch.Generator().manual_seed(3)
    return [(torch.randn(4, 3, 16, 16, generator=g),) for _ in range(count)]


def tokens(count: int) -> list[tuple[Any, ...]]:
    g = torch.Generator().manual_seed(3)
    return [(torch.randint(0, 50, (2, 12), generator=g),) for _ in range(count)]


def rows(count: int) -> list[tuple[Any, ...]]:
    g = torch.Generator().manual_seed(3)
    return [(torch.randn(8, 16, generator=g),) for _ in range(count)]


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    out = model(x)
    if x.dtype == torch.int64:
        return F.cross_entropy(out[:, :-1].flatten(0, 1), x[:, 1:].flatten())
    if out.dim() == 2 and out.size(1) == 5:
        return F.cross_entropy(out, torch.arange(len(x)) % 5)
    return (out - x).square().mean()


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], list[tuple[Any, ...]]]]] = {
    "mlp": (mlp, rows),
    "resnet": (ResNet, images),
    "unet": (UNet, images),
    "sdpa": (lambda: Tied("sdpa"), tokens),
    "eager": (lambda: Tied("eager"), tokens),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=True),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "sgd-nesterov-foreach": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, foreach=True
    ),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
    "radam": lambda p: torch.optim.RAdam(p, lr=1e-2),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-2),
    "adamax": lambda p: torch.optim.Adamax(p, lr=1e-2),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "asgd": lambda p: torch.optim.ASGD(p, lr=1e-2),
    "rprop": lambda p: torch.optim.Rprop(p, lr=1e-2),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-2),
}


def maker(model_name: str, optimizer_name: str, clip: bool = False) -> Callable[[], parity.Made]:
    def make() -> parity.Made:
        model = MODELS[model_name][0]()
        optimizer = OPTIMIZERS[optimizer_name](model.parameters())

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = loss_of(model, x)
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return [model], [optimizer], step

    return make


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("optimizer", ["adamw", "adamw-fused", "adamw-foreach", "sgd"])
def test_bits(model: str, optimizer: str) -> None:
    driver = parity.run(maker(model, optimizer, clip=True), MODELS[model][1](5))
    assert len(driver.captures) == 2  # the first step makes the optimizer's state


@pytest.mark.parametrize("optimizer", [n for n in OPTIMIZERS if not n.startswith("adamw")])
def test_bits_optimizers(optimizer: str) -> None:
    driver = parity.run(maker("mlp", optimizer), rows(8))
    assert len(driver.captures) <= 3, driver.reasons


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("optimizer", ["adamw", "adamw-fused", "adamw-foreach", "sgd"])
def test_fake_lists_what_real_does(model: str, optimizer: str) -> None:
    models, optimizers, step = maker(model, optimizer, clip=True)()
    for (x,) in MODELS[model][1](2):
        fake = capture(step, (x,), models=models, optimizers=optimizers)
        real = capture(step, (x,), models=models, optimizers=optimizers, real=True)
        assert op_names(fake) == op_names(real)
        assert fake.graph["ops"] == real.graph["ops"]
        assert fake.graph["values"] == real.graph["values"]
        assert fake.graph["storages"] == real.graph["storages"]


def test_writes_that_schemas_do_not_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    models, optimizers, step = maker("resnet", "adamw")()
    (x,) = images(1)[0]
    made = {"models": models, "optimizers": optimizers, "real": True, "check_writes": True}
    capture(step, (x,), **made)
    monkeypatch.setattr(tables, "_UNMARKED_WRITES", {})
    with pytest.raises(CaptureError, match="native_batch_norm"):
        capture(step, (x,), **made)


def test_sites_follow_modules_and_phases() -> None:
    models, optimizers, step = maker("mlp", "sgd")()
    graph = capture(step, rows(1)[0], models=models, optimizers=optimizers).graph
    sites = [(op["name"], op["site"]) for op in graph["ops"]]
    forward = [s["module"] for n, s in sites if n == "aten.addmm.default"]
    assert forward == ["0", "3"]
    backward = [s for n, s in sites if n == "aten.gelu_backward.default"]
    assert [(s["module"], s["phase"]) for s in backward] == [("1", "backward")]
    assert all(s["file"] == __file__ for _, s in sites)
    phases = [s["phase"] for _, s in sites]
    assert phases == sorted(phases, key=["forward", "backward", "optimizer"].index)


@pytest.mark.long
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_transformers(name: str) -> None:
    import transformers

    def make() -> parity.Made:
        if name == "gpt2":
            config: Any = transformers.GPT2Config(
                n_layer=2, n_head=2, n_embd=32, vocab_size=50, n_positions=16
            )
        else:
            config = transformers.LlamaConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=1,
                intermediate_size=64,
                vocab_size=50,
            )
        model = transformers.AutoModelForCausalLM.from_config(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)

        def step(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            loss = model(input_ids=ids, attention_mask=mask, labels=ids).loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            return loss.detach()

        return [model], [optimizer], step

    calls = []
    for k, (ids,) in enumerate(tokens(6)):
        mask = torch.ones_like(ids)
        mask[0, 8:] = int(k % 3 != 2)  # padded or not: transformers branches on it
        calls.append((ids, mask))
    driver = parity.run(make, calls)
    assert len(driver.captures) <= 3, driver.reasons
