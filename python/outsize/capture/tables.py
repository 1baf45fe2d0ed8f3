"""What op schemas do not say, or say wrongly (each seen or read: an op's schema is a claim, not proof).

mutated_beyond_schema("aten.native_batch_norm.default", args)  -> positions (3, 4) in training
"""

from __future__ import annotations

from typing import Any

import torch

# Arguments that the kernel writes though the schema marks no write: (positions, position of the
# `training` flag or None).
_UNMARKED_WRITES: dict[str, tuple[tuple[int, ...], int | None]] = {
    "aten.native_batch_norm.default": ((3, 4), 5),
    "aten.cudnn_batch_norm.default": ((3, 4), 5),
    "aten.miopen_batch_norm.default": ((3, 4), 5),
    "aten.batch_norm_update_stats.default": ((1, 2), None),
    "aten.batch_norm_gather_stats.default": ((3, 4), None),
    "aten.batch_norm_gather_stats_with_counts.default": ((3, 4), None),
    "aten.mkldnn_rnn_layer_backward.default": ((22,), None),
    "aten._cudnn_rnn_backward.default": ((20,), None),
    "aten.rrelu_with_noise.default": ((1,), 4),
}

# Ops that make nothing the step can be planned by: their effect is on Python or the profiler.
IGNORED_NAMESPACES = frozenset({"profiler", "prim", "prims_debug"})
COLLECTIVE_NAMESPACES = frozenset({"_c10d_functional", "c10d_functional", "c10d", "_dtensor"})

# Ops that can't be repeated from their arguments: position of the `training` flag, and what to do instead.
# (oneDNN's LSTM makes an opaque workspace, of a size that only it knows, if gradients are recorded.)
_UNREPEATABLE: dict[str, tuple[int, str]] = {
    "aten.mkldnn_rnn_layer.default": (
        15,
        "for an LSTM on CPU: call the step under torch.backends.mkldnn.flags(enabled=False)",
    ),
}

# Ops whose requests for memory depend on tensor data, so that no plan can hold them.
_DATA_SIZED: dict[str, str] = {
    "aten.masked_scatter_backward.default": "put the rows in by torch.where or index_copy, not masked_scatter",
    "aten.embedding_renorm_.default": "for an embedding with max_norm: renormalise its weights between steps",
    "aten.linalg_matrix_exp.default": "for an orthogonal layer: orthogonalise its weights between steps",
}

# Ops that change a tensor's geometry or storage behind its other views.
REBINDING = ("aten.set_.", "aten.resize_.", "aten.resize_as_.", "aten.set_data.")

# Ops whose result is a plain Python value read from tensor data.
READS_DATA = frozenset({"aten.equal.default", "aten.is_nonzero.default"})


def ask_the_kernel(name: str, tensors: list[torch.Tensor]) -> bool:
    """Whether the shape function is wrong for these operands, so that the kernel is run on zeros for it: the
    gradient of a layer norm has plain strides where the input's are others.
    """
    known = name == "aten.native_layer_norm_backward.default"
    return known and not all(tensor.is_contiguous() for tensor in tensors)


def mutated_beyond_schema(name: str, arguments: list[Any]) -> tuple[int, ...]:
    positions, flag = _UNMARKED_WRITES.get(name, ((), None))
    if flag is not None and not arguments[flag]:
        return ()
    return positions


def unplannable(name: str, arguments: list[Any]) -> tuple[str, str] | None:
    """Why this op can't be part of a plan and what to do instead; None if it can."""
    if name in _DATA_SIZED:
        return "the memory that the op asks for depends on tensor data", _DATA_SIZED[name]
    position, way_out = _UNREPEATABLE.get(name, (None, ""))
    if position is None or not arguments[position]:
        return None
    return "the op needs state that is not among its arguments", way_out


def true_dtypes(name: str, arguments: list[Any]) -> dict[int, torch.dtype]:
    """The dtypes of results, by position, that fake kernels get wrong.

    CPU kernels of normalisations with low-precision input and float32 weights keep their statistics in
    float32 (fake ones: in the input's dtype), and give the input's gradient the input's dtype.
    """
    source, weight = _NORMALISATIONS.get(name, (None, None))
    if source is None or weight is None:
        return {}
    low, high = arguments[source], arguments[weight]
    if not isinstance(high, torch.Tensor) or low.dtype not in (torch.bfloat16, torch.float16):
        return {}
    if name in _STATISTICS:
        return {position: high.dtype for position in (1, 2)}
    return {0: low.dtype, 1: high.dtype, 2: high.dtype}


# Positions of the input and the weight.
_NORMALISATIONS = {
    "aten.native_layer_norm.default": (0, 2),
    "aten.native_group_norm.default": (0, 1),
    "aten.native_batch_norm.default": (0, 1),
    "aten.native_layer_norm_backward.default": (1, 5),
    "aten.native_group_norm_backward.default": (1, 4),
    "aten.native_batch_norm_backward.default": (1, 2),
}
_STATISTICS = frozenset(name for name in _NORMALISATIONS if not name.endswith("backward.default"))
