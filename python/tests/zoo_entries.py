"""What a zoo of models is made of: its entries, and those of `transformers` by name.

register("encoder", ("bert", "BertConfig", "BertForMaskedLM", sizes, batch))   # into ZOO["bert"]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from step_models import Training, minimizing

STEPS = 3
Batch = dict[str, torch.Tensor]
# A model of `transformers`: its name here, a configuration class, a model class, sizes, a batch.
Row = tuple[str, str, str, dict[str, Any], Callable[[torch.Generator], Batch]]


@dataclass(frozen=True)
class Entry:
    """A model of the zoo: its kind, as people sort them, and a training run at its start."""

    name: str
    kind: str
    make: Callable[[], Training]


ZOO: dict[str, Entry] = {}


def add(kind: str) -> Callable[[Callable[[], Training]], Callable[[], Training]]:
    """A decorator: the function makes the zoo's model of its name."""

    def add_it(make: Callable[[], Training]) -> Callable[[], Training]:
        ZOO[make.__name__] = Entry(make.__name__, kind, make)
        return make

    return add_it


def register(kind: str, *rows: Row) -> None:
    """Models of the library, with random weights; the loss is their own."""
    for row in rows:
        ZOO[row[0]] = Entry(row[0], kind, _maker(row))


def _maker(row: Row) -> Callable[[], Training]:
    _, config_name, model_name, sizes, batch = row

    def make() -> Training:
        import transformers

        torch.manual_seed(3)
        config = getattr(transformers, config_name)(**sizes)
        model = getattr(transformers, model_name)(config).train()
        optimizer = torch.optim.AdamW(model.parameters())
        generator = torch.Generator().manual_seed(4)
        made = [batch(generator) for _ in range(STEPS)]
        keys = list(made[0])
        more = {"return_loss": True} if config_name in ("CLIPConfig", "SiglipConfig") else {}

        def loss_of(*tensors: torch.Tensor) -> torch.Tensor:
            return model(**dict(zip(keys, tensors)), **more).loss

        step = minimizing(optimizer, loss_of)
        return Training(model, optimizer, step, [tuple(b.values()) for b in made])

    return make
