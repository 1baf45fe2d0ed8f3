"""Train models that outsize your device: the same step, to the same bits, inside a byte budget.

    import outsize

    @outsize.step(model, optimizer, budget="6GiB")
    def train_step(batch): ...

`step` runs a training step inside a budget; `Forecast` and `StepRecord` are what it promises and
measures; `estimate` says beforehand what a step needs and what budgets would give; `explain` what sets its peak
or floor and what each way out saves; `verify` proves on your own model and batch that it is the same step.
Everything that Outsize raises on purpose is an `OutsizeError`.
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
from .estimate import BudgetRow, Estimate, estimate
from .explain import Explanation, Holder, Way, explain
from .forecast import Forecast, StepRecord
from .graph_words import Place
from .step import Step, step
from .verify import Difference, Verification, verify

__all__ = [
    "BadInputError",
    "BudgetRow",
    "CaptureError",
    "DeviceError",
    "Difference",
    "Estimate",
    "Explanation",
    "Forecast",
    "Holder",
    "InfeasibleError",
    "OutsizeError",
    "Place",
    "PoisonedError",
    "Step",
    "StepError",
    "StepRecord",
    "Verification",
    "Way",
    "__version__",
    "estimate",
    "explain",
    "step",
    "verify",
]
