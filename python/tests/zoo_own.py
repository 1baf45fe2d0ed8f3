"""The zoo's models of one's own: recurrent, diffusion, on a graph, adversarial."""

from __future__ import annotations

from collections.abc import Callable

import torch
from step_models import Training, minimizing, unet
from torch import nn
from torch.nn import functional
from zoo_entries import STEPS, add
from zoo_text import random_tokens


def _own(
    model: nn.Module, loss_of: Callable[..., torch.Tensor], batches: list[tuple[torch.Tensor, ...]]
) -> Training:
    optimizer = torch.optim.AdamW(model.parameters())
    return Training(model, optimizer, minimizing(optimizer, loss_of), batches)


class RecurrentLanguageModel(nn.Module):
    """Embedding, two recurrent layers with dropout between, a tied head."""

    def __init__(self, cells: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embed = nn.Embedding(80, 32)
        self.cells = cells(32, 32, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(32, 80)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        # oneDNN's LSTM makes memory of a size only it knows; PyTorch's own is taken instead.
        with torch.backends.mkldnn.flags(enabled=False):
            hidden = self.cells(self.embed(tokens))[0]
        scores = self.head(hidden[:, :-1]).flatten(0, 1)
        return functional.cross_entropy(scores, tokens[:, 1:].flatten())


def _recurrent(cells: type[nn.RNNBase]) -> Training:
    torch.manual_seed(3)
    model = RecurrentLanguageModel(cells)
    generator = torch.Generator().manual_seed(4)
    return _own(model, model, [(random_tokens(generator),) for _ in range(STEPS)])


@add("recurrent")
def lstm_language_model() -> Training:
    return _recurrent(nn.LSTM)


@add("recurrent")
def gru_language_model() -> Training:
    return _recurrent(nn.GRU)


@add("diffusion")
def u_net() -> Training:
    run = unet("adamw")
    del run.batches[STEPS:]
    return run


class GraphNetwork(nn.Module):
    """Two rounds of messages along fixed edges: gathers, and sums into nodes."""

    def __init__(self, edges: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("edges", edges)
        self.enter = nn.Linear(8, 16)
        self.message = nn.Linear(32, 16)
        self.update = nn.GRUCell(16, 16)
        self.leave = nn.Linear(16, 1)

    def forward(self, nodes: torch.Tensor) -> torch.Tensor:
        source, target = self.edges
        hidden = self.enter(nodes)
        for _ in range(2):
            ends = torch.cat([hidden[source], hidden[target]], 1)
            messages = functional.relu(self.message(ends))
            hidden = self.update(torch.zeros_like(hidden).index_add(0, target, messages), hidden)
        return self.leave(hidden)


@add("graph")
def graph_network() -> Training:
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(4)
    model = GraphNetwork(torch.randint(0, 30, (2, 120), generator=generator))

    def loss_of(nodes: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(model(nodes), wanted)

    batches = [
        (torch.randn(30, 8, generator=generator), torch.randn(30, 1, generator=generator))
        for _ in range(STEPS)
    ]
    return _own(model, loss_of, batches)


def generator_and_critic() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(3)
    maker = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
    critic = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(32, 1))
    return maker, critic


@add("adversarial")
def gan_in_one_step() -> Training:
    """Critic and generator, with an optimizer each, both trained in every step."""
    maker, critic = generator_and_critic()
    of_maker = torch.optim.AdamW(maker.parameters())
    of_critic = torch.optim.AdamW(critic.parameters())

    def step(real: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = maker(noise)
        of_critic.zero_grad()
        critic_loss = functional.softplus(critic(made.detach())).mean()
        critic_loss = critic_loss + functional.softplus(-critic(real)).mean()
        critic_loss.backward()
        of_critic.step()
        of_maker.zero_grad()
        maker_loss = functional.softplus(-critic(made)).mean()
        maker_loss.backward()
        of_maker.step()
        return critic_loss, maker_loss

    generator = torch.Generator().manual_seed(4)
    batches = [
        (torch.randn(16, 16, generator=generator), torch.randn(16, 8, generator=generator))
        for _ in range(STEPS)
    ]
    return Training(maker, of_maker, step, batches, others=[critic, of_critic])
