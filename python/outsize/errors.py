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
    """No plan fits the budget; the message says what would.

    least_bytes: the least budget that this planner can do, if it found one; floor_bytes: no plan of any
    planner can do with less.
    """

    def __init__(
        self, text: str, *, least_bytes: int | None = None, floor_bytes: int | None = None
    ) -> None:
        super().__init__(text)
        self.least_bytes = least_bytes
        self.floor_bytes = floor_bytes


class StepError(OutsizeError):
    """A planned step failed while it ran.

    undone: the state, PyTorch's generator included, is what it was before; otherwise `mixed` names the
    tensors that hold a mix of two steps, and steps are refused until they are restored.
    """

    def __init__(self, text: str, *, undone: bool = False, mixed: list[str] | None = None) -> None:
        super().__init__(text)
        self.undone = undone
        self.mixed = mixed or []


class PoisonedError(StepError):
    """An earlier step failed after it had begun to write; the state is mixed until it is restored."""


class VerifyError(OutsizeError):
    """A planned step's numbers differ from the plain step's."""
