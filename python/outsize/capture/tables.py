"""What op schemas do not say, or say wrongly (each seen or read: an op's schema is a claim, not proof).

mutated_beyond_schema("aten.native_batch_norm.default", args)  -> positions (3, 4) in training
"""

from __future__ import annotations

from typing import Any

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

# Ops that change a tensor's geometry or storage behind its other views.
REBINDING = ("aten.set_.", "aten.resize_.", "aten.resize_as_.", "aten.set_data.")

# Ops whose result is a plain Python value read from tensor data.
READS_DATA = frozenset({"aten.equal.default", "aten.is_nonzero.default"})


def mutated_beyond_schema(name: str, arguments: list[Any]) -> tuple[int, ...]:
    positions, flag = _UNMARKED_WRITES.get(name, ((), None))
    if flag is not None and not arguments[flag]:
        return ()
    return positions


def way_around(name: str, arguments: list[Any]) -> str:
    """What to do instead of calling this op, if it can't be part of a plan; "" if it can."""
    position, way_out = _UNREPEATABLE.get(name, (None, ""))
    return way_out if position is not None and arguments[position] else ""
