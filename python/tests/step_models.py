"""Tiny training runs for the tests of `outsize.step`: models, optimizers, a step and its batches.

run = gpt2("sdpa", "adamw")      # builds it anew, the same each time
run.step(*run.batches[0])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional

STEPS = 5


@dataclass
class Training:
    """A training run at its start. `after` is what the loop does after each step."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[..., Any]
    batches: list[tuple[torch.Tensor, ...]]
    after: Callable[[], None] = lambda: None
    others: list[Any] = field(default_factory=list)  # more models and optimizers of the step


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1),
    "foreach": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2),
}


def minimizing(
    optimizer: torch.optim.Optimizer, loss_of: Callable[..., torch.Tensor]
) -> Callable[..., torch.Tensor]:
    """The step that most training has: a loss of the batch, its gradients, the optimizer, none left."""

    def train_step(*batch: Any) -> torch.Tensor:
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return train_step


def plain_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., torch.Tensor]:
    return minimizing(optimizer, lambda x, target: functional.mse_loss(model(x), target))


def gpt2(attention: str, optimizer_name: str, scheduler_inside: bool) -> Training:
    """transformers' GPT-2: dropout 0.1, tied embeddings, clipping, a cosine schedule."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(3)
    config = GPT2Config(
        n_layer=2,
        n_embd=32,
        n_head=2,
        vocab_size=96,
        n_positions=32,
        attn_implementation=attention,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    model.train()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)

    def train_step(tokens: torch.Tensor) -> torch.Tensor:
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if scheduler_inside:
            scheduler.step()
        optimizer.zero_grad()
        return loss

    generator = torch.Generator().manual_seed(4)
    batches = [(torch.randint(0, 96, (4, 24), generator=generator),) for _ in range(STEPS)]
    after = (lambda: None) if scheduler_inside else scheduler.step
    return Training(model, optimizer, train_step, batches, after)


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(self.norm1(self.first(x)), inplace=True)
        return functional.relu(self.norm2(self.second(hidden)) + x)


def resnet(optimizer_name: str, blocks: int = 2) -> Training:
    """A ResNet with batch norm, which keeps running statistics in buffers."""
    torch.manual_seed(5)
    stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    model = nn.Sequential(stem, *(Block(8) for _ in range(blocks)), head)
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())

    def train_step(images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        optimizer.zero_grad()
        logits = model(images)
        loss = functional.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "right": (logits.argmax(1) == labels).sum()}

    generator = torch.Generator().manual_seed(6)
    batches = [
        (
            torch.randn(4, 3, 12, 12, generator=generator),
            torch.randint(0, 10, (4,), generator=generator),
        )
        for _ in range(STEPS)
    ]
    return Training(model, optimizer, train_step, batches)


def mlp(optimizer_name: str, depth: int = 3, width: int = 48, batch: int = 32) -> Training:
    """A multilayer perceptron with dropout."""
    torch.manual_seed(7)
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU(), nn.Dropout(0.2)]
    model = nn.Sequential(*layers, nn.Linear(width, width))
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    generator = torch.Generator().manual_seed(8)
    batches = [
        (
            torch.randn(batch, width, generator=generator),
            torch.randn(batch, width, generator=generator),
        )
        for _ in range(STEPS)
    ]
    return Training(model, optimizer, plain_step(model, optimizer), batches)


class UNet(nn.Module):
    """Two levels with skips that are concatenated; every ReLU is in place."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = self._double(1, 6), self._double(6, 12)
        self.middle = self._double(12, 12)
        self.up2, self.up1 = self._double(24, 6), self._double(12, 6)
        self.out = nn.Conv2d(6, 1, 1)

    def _double(self, before: int, after: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, padding=1),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skip1 = self.down1(x)
        skip2 = self.down2(functional.max_pool2d(skip1, 2))
        low = self.middle(functional.max_pool2d(skip2, 2))
        high = self.up2(torch.cat([functional.interpolate(low, scale_factor=2), skip2], 1))
        full = self.up1(torch.cat([functional.interpolate(high, scale_factor=2), skip1], 1))
        return self.out(full)


def unet(optimizer_name: str) -> Training:
    torch.manual_seed(9)
    model = UNet()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    generator = torch.Generator().manual_seed(10)
    batches = [
        (
            torch.randn(2, 1, 16, 16, generator=generator),
            torch.randn(2, 1, 16, 16, generator=generator),
        )
        for _ in range(STEPS)
    ]
    return Training(model, optimizer, plain_step(model, optimizer), batches)
