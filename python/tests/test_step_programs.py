"""Random programs of tensor ops as training steps, at random budgets: bit for bit what eager PyTorch does."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from step_models import Training
from step_parity import check_budget, compare, sizes_of, train
from torch import nn
from torch.nn import functional

WIDTH = 16
Words = dict[str, Callable[["Program", torch.Tensor, list[torch.Tensor]], torch.Tensor]]

# What a program is made of: (program, tensor so far, the tensors before it) -> tensor, all BATCH x WIDTH.
WORDS: Words = {
    "first": lambda program, x, past: x @ program.first,
    "second": lambda program, x, past: functional.linear(x, program.second, program.bias),
    "tied": lambda program, x, past: x @ program.first.t(),
    "gelu": lambda program, x, past: functional.gelu(x),
    "relu_": lambda program, x, past: functional.relu(x * 1.5, inplace=True),
    "dropout": lambda program, x, past: functional.dropout(x, 0.3),
    "softmax": lambda program, x, past: x.softmax(-1),
    "norm": lambda program, x, past: functional.layer_norm(x, (WIDTH,), program.bias),
    "again": lambda program, x, past: x + past[len(past) // 2],
    "halves": lambda program, x, past: torch.cat(list(reversed(x.chunk(2, dim=1))), dim=1),
    "rows": lambda program, x, past: x.t().contiguous().cumsum(0).t() / WIDTH,
    "slice": lambda program, x, past: written_in_part(x),
    "count": lambda program, x, past: program.counted(x),
}


def written_in_part(x: torch.Tensor) -> torch.Tensor:
    """A copy with four of its columns scaled through a view."""
    y = x.clone()
    y[:, 3:7].mul_(0.5)
    return y


class Program(nn.Module):
    """Runs its words in order. One buffer remembers what went by."""

    seen: torch.Tensor

    def __init__(self, words: list[str]) -> None:
        super().__init__()
        self.words = words
        self.first = nn.Parameter(torch.randn(WIDTH, WIDTH) / 4)
        self.second = nn.Parameter(torch.randn(WIDTH, WIDTH) / 4)
        self.bias = nn.Parameter(torch.randn(WIDTH))
        self.register_buffer("seen", torch.zeros(WIDTH))

    def counted(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.lerp_(x.detach().mean(0), 0.1)
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        past = [x]
        for word in self.words:
            past.append(WORDS[word](self, past[-1], past))
        return past[-1]


def training_of(words: list[str], batch: int) -> Training:
    torch.manual_seed(21)
    model = Program(words)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

    def train_step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean() + model.bias.square().sum() * 1e-3
        loss.backward()
        optimizer.step()
        return loss

    generator = torch.Generator().manual_seed(22)
    batches = [(torch.randn(batch, WIDTH, generator=generator),) for _ in range(3)]
    return Training(model, optimizer, train_step, batches)


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    words=st.lists(st.sampled_from(sorted(WORDS)), min_size=3, max_size=12),
    batch=st.sampled_from([8, 33]),
    share=st.floats(0, 1),
)
def test_random_programs_keep_their_bits(words: list[str], batch: int, share: float) -> None:
    make = lambda: training_of(words, batch)  # noqa: E731
    floor, peak = sizes_of(make)
    least = floor * 105 // 100
    budget = max(least, int(least + share * (peak - least)))
    wanted = train(make)
    compare(wanted, train(make))
    planned = train(make, budget=budget, seconds=1.0, poison=True)
    compare(wanted, planned)
    check_budget(planned, budget)
