"""Train models that outsize your device: the same step, to the same bits, inside a byte budget.

    import outsize

    @outsize.step(model, optimizer, budget="6GiB")
    def train_step(batch): ...

`step` is the whole interface; `Forecast` and `StepRecord` are what it promises and measures. Everything
that Outsize raises on purpose is an `OutsizeError`.
"""

import torch  # noqa: F401  (before the core, which is linked against it)

from outsize_core import __version__

from .errors import (
    BadInputError,
    CaptureError,
    DeviceError,
    InfeasibleError,
    OutsizeError,
    PoisonedError,
    StepError,
)
from .forecast import Forecast, StepRecord
from .step import Step, step

__all__ = [
    "BadInputError",
    "CaptureError",
    "DeviceError",
    "Forecast",
    "InfeasibleError",
    "OutsizeError",
    "PoisonedError",
    "Step",
    "StepError",
    "StepRecord",
    "__version__",
    "step",
]
