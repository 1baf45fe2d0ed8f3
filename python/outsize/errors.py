"""What Outsize raises.

Every message names the thing, what was wanted and what was had, and where there is one, the way out.

    >>> raise CaptureError("the step calls Tensor.numpy()", where="train.py:12", way_out="move it out")
    Traceback (most recent call last):
    ...
    outsize.errors.CaptureError: train.py:12: the step calls Tensor.numpy(). Way out: move it out
"""

from __future__ import annotations


class OutsizeError(Exception):
    """Everything that Outsize raises on purpose."""


class CaptureError(OutsizeError):
    """The step cannot be captured; nothing has been changed."""

    def __init__(self, what: str, where: str = "", way_out: str = "") -> None:
        text = f"{where}: {what}" if where else what
        if way_out:
            text += f". Way out: {way_out}"
        super().__init__(text)
        self.what = what
        self.where = where
        self.way_out = way_out


class BadInputError(OutsizeError):
    """An option, budget, file or object that can't be taken; nothing has been changed."""


class DeviceError(OutsizeError):
    """A tier or the device failed: no memory, a full disk, a short read."""


class InfeasibleError(OutsizeError):
    """No plan fits the budget; the message says what would."""


class StepError(OutsizeError):
    """A planned step failed while it ran."""


class PoisonedError(StepError):
    """An earlier step failed after it had begun to write; the state is mixed until it is restored."""


class VerifyError(OutsizeError):
    """A planned step's numbers differ from the plain step's."""
