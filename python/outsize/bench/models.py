"""The models that the bench trains, in plain PyTorch: model, optimizer, step and batches of each.

Nothing here imports Outsize: the unplanned processes load this file. A workload of your own is a
function in a file, named on the command line as ``FILE.py:FUNCTION``; it takes no arguments and
returns ``(model, optimizer, train_step, make_batch)``, where ``train_step(batch)`` returns the loss
and ``make_batch(index)`` the batch of that step.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional

Batch = Any
TrainStep = Callable[[Batch], torch.Tensor]


@dataclass
class Workload:
    """A training run: call `train_step(make_batch(i))`, then `after_step()`, for i = 0, 1, …"""

    name: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    train_step: TrainStep
    make_batch: Callable[[int], Batch]
    after_step: Callable[[], None]
    batch_size: int
    input: str  # what a batch is, for people

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def parameter_bytes(self) -> int:
        return sum(parameter.nbytes for parameter in self.model.parameters())


def plain_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_of: Callable[[Batch], torch.Tensor],
    clip: float | None = None,
) -> TrainStep:
    """Forward, backward, clipping where wanted, optimizer."""

    def train_step(batch: Batch) -> torch.Tensor:
        loss = loss_of(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return train_step


# ---- GPT-2 and LLaMA --------------------------------------------------------------------------

# What differs from GPT2Config's own sizes, which are gpt2-124m's.
GPT2_SIZES = {
    "gpt2-30m": {
        "n_layer": 8,
        "n_embd": 512,
        "n_head": 8,
        "vocab_size": 8192,
        "n_positions": 512,
    },
    "gpt2-124m": {},
    "gpt2-xl": {"n_layer": 48, "n_embd": 1600, "n_head": 25},
}
LLAMA = "llama-6.7b"  # LlamaConfig's own sizes


def language_model(name: str) -> nn.Module:
    """transformers' GPT-2, with its dropout of 0.1 and tied embeddings, or LLaMA."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    # No special tokens: those of the published vocabulary may lie outside the text's.
    common: dict[str, Any] = {
        "attn_implementation": "sdpa",
        "use_cache": False,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if name == LLAMA:
        llama: nn.Module = LlamaForCausalLM(LlamaConfig(**common))
        return llama
    gpt2: nn.Module = GPT2LMHeadModel(GPT2Config(**common, **GPT2_SIZES[name]))
    return gpt2


def language(name: str, tokens: Path, steps: int) -> Workload:
    """A language model on 8 windows of 512 tokens, AdamW, clipped, on a cosine schedule."""
    batch_size, length = 8, 512
    model = language_model(name)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max(steps, 1))
    text = numpy.fromfile(tokens, dtype=numpy.uint16)

    def make_batch(index: int) -> Batch:
        generator = torch.Generator().manual_seed(1000 + index)
        starts = torch.randint(0, len(text) - length, (batch_size,), generator=generator)
        windows = numpy.stack([text[start : start + length] for start in starts.tolist()])
        return torch.from_numpy(windows.astype(numpy.int64)).clone()

    def loss_of(batch: Batch) -> torch.Tensor:
        loss: torch.Tensor = model(input_ids=batch, labels=batch, use_cache=False).loss
        return loss

    train_step = plain_step(model, optimizer, loss_of, clip=1.0)
    return Workload(
        name,
        model,
        optimizer,
        train_step,
        make_batch,
        schedule.step,
        batch_size,
        f"{batch_size} x {length} tokens",
    )


# ---- ResNet-50 --------------------------------------------------------------------------------


class Bottleneck(nn.Module):
    """1x1 down, 3x3, 1x1 up by four, and a skip; ReLU in place."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.skip = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.skip(x), inplace=True)


def resnet50_model(classes: int = 1000) -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
    ]
    inputs = 64
    for width, count, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(count):
            layers.append(Bottleneck(inputs, width, first_stride if index == 0 else 1))
            inputs = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
    return nn.Sequential(*layers)


def resnet50() -> Workload:
    """ResNet-50 on 32 images of 128 x 128, SGD with momentum."""
    model = resnet50_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)

    def make_batch(index: int) -> Batch:
        generator = torch.Generator().manual_seed(1000 + index)
        images = torch.randn(32, 3, 128, 128, generator=generator)
        return images, torch.randint(0, 1000, (32,), generator=generator)

    return images_workload("resnet50", model, optimizer, make_batch, 32, "32 x 3 x 128 x 128")


# ---- U-Net ------------------------------------------------------------------------------------


def double_convolution(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """Contracting by max pooling, expanding by transposed convolutions, skips joined by channels."""

    def __init__(self, widths: tuple[int, ...] = (48, 96, 192, 384, 640), classes: int = 2) -> None:
        super().__init__()
        pairs = list(zip(widths, widths[1:], strict=False))
        self.first = double_convolution(3, widths[0])
        self.down = nn.ModuleList(double_convolution(low, high) for low, high in pairs)
        pairs.reverse()
        self.grow = nn.ModuleList(nn.ConvTranspose2d(high, low, 2, 2) for low, high in pairs)
        self.up = nn.ModuleList(double_convolution(2 * low, low) for low, _ in pairs)
        self.last = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = [self.first(x)]
        for down in self.down:
            skips.append(down(functional.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for grow, up in zip(self.grow, self.up, strict=True):
            x = up(torch.cat((skips.pop(), grow(x)), 1))
        y: torch.Tensor = self.last(x)
        return y


def unet_15m() -> Workload:
    """A U-Net of 15 M parameters on 4 images of 256 x 256, Adam."""
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def make_batch(index: int) -> Batch:
        generator = torch.Generator().manual_seed(1000 + index)
        images = torch.randn(4, 3, 256, 256, generator=generator)
        return images, torch.randint(0, 2, (4, 256, 256), generator=generator)

    return images_workload("unet-15m", model, optimizer, make_batch, 4, "4 x 3 x 256 x 256")


def images_workload(
    name: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    make_batch: Callable[[int], Batch],
    batch_size: int,
    shape: str,
) -> Workload:
    model.train()

    def loss_of(batch: Batch) -> torch.Tensor:
        images, labels = batch
        return functional.cross_entropy(model(images), labels)

    train_step = plain_step(model, optimizer, loss_of)
    return Workload(name, model, optimizer, train_step, make_batch, nothing, batch_size, shape)


def nothing() -> None:
    """After a step that has no schedule."""


# ---- By name ----------------------------------------------------------------------------------

WANTS_TEXT = (*GPT2_SIZES, LLAMA)
MODELS = (*WANTS_TEXT, "resnet50", "unet-15m")
# Parameters of those that a small machine can't train plainly: known before minutes are spent on building them.
LARGE_MODELS = {"gpt2-xl": 1_557_611_200, LLAMA: 6_738_415_616}


def from_file(where: str) -> Workload:
    """The workload that ``FILE.py:FUNCTION`` returns."""
    file, _, function = where.rpartition(":")
    path = Path(file).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"--model {where}: no file {path}")
    spec = importlib.util.spec_from_file_location("bench_workload", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    build = getattr(module, function, None)
    if not callable(build):
        raise ValueError(f"--model {where}: {path.name} has no function {function}")
    parts = build()
    if not isinstance(parts, tuple) or len(parts) != 4:
        raise ValueError(
            f"--model {where}: wanted (model, optimizer, train_step, make_batch), had {type(parts).__name__}"
        )
    model, optimizer, train_step, make_batch = parts
    tensors = [t for t in torch.utils._pytree.tree_leaves(make_batch(0)) if torch.is_tensor(t)]
    batch_size = int(tensors[0].shape[0]) if tensors and tensors[0].dim() else 1
    shapes = ", ".join(" x ".join(map(str, tensor.shape)) for tensor in tensors)
    return Workload(where, model, optimizer, train_step, make_batch, nothing, batch_size, shapes)


def build_workload(name: str, seed: int, steps: int, tokens: Path | None) -> Workload:
    """Seeds all generators and builds the model: the same name and seed, the same bits.

    `steps` is the length of the learning rate's schedule, `tokens` what text.py wrote.
    """
    torch.manual_seed(seed)
    numpy.random.seed(seed)
    random.seed(seed)
    if name in WANTS_TEXT:
        if tokens is None:
            raise ValueError(f"{name} wants a file of tokens")
        return language(name, tokens, steps)
    if name == "resnet50":
        return resnet50()
    if name == "unet-15m":
        return unet_15m()
    return from_file(name)
