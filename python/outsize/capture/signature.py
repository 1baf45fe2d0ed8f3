"""When may a captured graph serve another call? When the signature is equal (and the guards hold).

    signature(args, kwargs, names)   # equal text, equal graph: shapes, dtypes, which .grad exist, ...

Floats that are arguments themselves and learning rates are inputs of the graph: only their type counts.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from outsize.capture.arguments import flatten
from outsize.capture.entries import Names
from outsize.capture.storages import (
    INPUT_ALIGNMENT,
    dtype_name,
    has_storage,
    storage_address,
)


def geometry(tensor: torch.Tensor) -> str:
    text = (
        f"{dtype_name(tensor.dtype)}{list(tensor.size())}{list(tensor.stride())}@{tensor.device}"
        if has_storage(tensor)
        else f"{tensor.layout}{list(tensor.size())}"
    )
    return text + ("!" if tensor.requires_grad else "")


def lying(tensor: torch.Tensor, seen: dict[int, int]) -> str:
    """The geometry of a persistent tensor, and which part of which storage it is."""
    text = geometry(tensor)
    if has_storage(tensor):
        number = seen.setdefault(storage_address(tensor), len(seen))
        text += f"#{number}+{tensor.storage_offset()}/{tensor.untyped_storage().nbytes()}"
    return text


def _argument(leaf: Any, path: str, seen: dict[int, tuple[int, int]]) -> str:
    if isinstance(leaf, torch.Tensor):
        text = geometry(leaf)
        if has_storage(leaf) and leaf.numel():
            # Arguments that share memory: which, and how far apart.
            offset = int(leaf.storage_offset()) * leaf.element_size()
            number, first = seen.setdefault(storage_address(leaf), (len(seen), offset))
            text += f"#{number}+{offset - first}~{offset % INPUT_ALIGNMENT}"
        return text
    if type(leaf) is float and "." not in path:
        return "float"
    if leaf is None or isinstance(leaf, (bool, int, float, str, torch.dtype, torch.device)):
        return repr(leaf)
    return f"{type(leaf).__module__}.{type(leaf).__qualname__}:{id(leaf)}"


def signature(args: tuple[Any, ...], kwargs: dict[str, Any], names: Names) -> str:
    """A digest of all that one graph is good for."""
    seen: dict[int, tuple[int, int]] = {}
    parts = [f"{path}={_argument(leaf, path, seen)}" for path, leaf in flatten(args, kwargs)]
    parts += [
        torch.__version__,
        str(torch.get_num_threads()),
        str(torch.is_grad_enabled()),
        str(torch.get_default_dtype()),
        str(torch.are_deterministic_algorithms_enabled()),
        str(torch.is_autocast_enabled("cpu")),
        str(torch.is_autocast_enabled("cuda")),
        str(torch.get_autocast_dtype("cpu")),
        str(torch.is_inference_mode_enabled()),
        str(torch.get_float32_matmul_precision()),
    ]
    # Which attention kernels may be chosen (torch.nn.attention.sdpa_kernel).
    for kernel in ("flash", "mem_efficient", "math"):
        parts.append(str(getattr(torch._C, f"_get_{kernel}_sdp_enabled")()))
    placed: dict[int, int] = {}
    for name, parameter in names.parameters:
        gradient = parameter.grad
        held = gradient is None or lying(gradient, placed)
        parts.append(f"{name}:{lying(parameter, placed)}:{held}")
    parts += [f"{name}:{lying(buffer, placed)}" for name, buffer in names.buffers]
    for model in names.models:
        parts.append("".join("t" if m.training else "e" for m in model.modules()))
    for state in names.states():
        value = (
            lying(state.value, placed)
            if isinstance(state.value, torch.Tensor)
            else repr(state.value)
        )
        parts.append(f"{names.state_name(state)}:{value}")
    for index, optimizer in enumerate(names.optimizers):
        for group in optimizer.param_groups:
            for key, option in sorted(group.items()):
                if key == "params":
                    option = [names.parameter_names.get(id(p)) for p in option]
                elif key == "lr" and isinstance(option, (int, float)):
                    option = type(option).__name__
                elif isinstance(option, torch.Tensor):
                    option = geometry(option)
                elif key in ("initial_lr", "last_epoch"):
                    continue
                parts.append(f"{index}:{key}={option!r}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
