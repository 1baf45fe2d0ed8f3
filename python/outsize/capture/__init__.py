"""Captures one call of a training step as a graph. See `capture.capture`."""

from outsize.capture.capture import capture
from outsize.capture.result import (
    Capture,
    Input,
    NewState,
    Output,
    Replay,
    ScalarInput,
    op_names,
)

__all__ = [
    "Capture",
    "Input",
    "NewState",
    "Output",
    "Replay",
    "ScalarInput",
    "capture",
    "op_names",
]
