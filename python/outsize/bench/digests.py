"""Digests of a training run's whole state, and the first name at which two of them differ.

Nothing here imports Outsize: the unplanned processes load this file.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from typing import Any

import numpy
import torch


def digest_tensor(tensor: torch.Tensor) -> str:
    """blake2b of dtype, sizes and raw bytes; strides don't matter, NaN payloads and signs of zero do."""
    digest = hashlib.blake2b(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode(), digest_size=16)
    plain = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    digest.update(plain.numpy().data)
    return digest.hexdigest()


def _digest_value(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return digest_tensor(value)
    return hashlib.blake2b(repr(value).encode(), digest_size=16).hexdigest()


def digest_generators() -> dict[str, str]:
    """The states of torch's CPU generator, Python's and NumPy's."""
    kind, keys, *rest = numpy.random.get_state(legacy=True)
    return {
        "generator of torch": digest_tensor(torch.get_rng_state()),
        "generator of Python": _digest_value(random.getstate()),
        "generator of NumPy": _digest_value((kind, numpy.asarray(keys).tobytes(), *rest)),
    }


def digest_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, str]:
    """Name -> digest of every parameter, gradient, buffer, optimizer state, setting and generator."""
    digests: dict[str, str] = {}
    names: dict[torch.nn.Parameter, str] = {}
    for name, parameter in model.named_parameters():
        names[parameter] = name
        digests[f"parameter {name}"] = digest_tensor(parameter)
        if parameter.grad is not None:
            digests[f"gradient {name}"] = digest_tensor(parameter.grad)
    for name, buffer in model.named_buffers():
        digests[f"buffer {name}"] = digest_tensor(buffer)
    for index, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            name = names.get(parameter, f"outside the model, group {index}")
            for key, value in optimizer.state.get(parameter, {}).items():
                digests[f"optimizer {key} of {name}"] = _digest_value(value)
        settings = [(key, _digest_value(group[key])) for key in sorted(group) if key != "params"]
        digests[f"optimizer settings of group {index}"] = _digest_value(settings)
    return digests | digest_generators()


def first_difference(wanted: Mapping[str, str], had: Mapping[str, str]) -> str | None:
    """The first name that is missing, left over or different; None where all is equal.

    >>> first_difference({"a": "1", "b": "2"}, {"a": "1", "b": "3"})
    'b differs'
    """
    for name, digest in wanted.items():
        if name not in had:
            return f"{name} is missing"
        if had[name] != digest:
            return f"{name} differs"
    for name in had:
        if name not in wanted:
            return f"{name} is only in the second"
    return None
