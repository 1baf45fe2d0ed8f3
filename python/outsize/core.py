"""The seam to the C++ core: its errors arrive here as `outsize.errors`, with their full text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import outsize_core

from . import errors


@contextmanager
def translated() -> Iterator[None]:
    """Raises the core's errors as Outsize's own."""
    try:
        yield
    except outsize_core.Error as error:
        raise _translation(error) from None


def _translation(error: outsize_core.Error) -> errors.OutsizeError:
    text = str(error)
    if isinstance(error, outsize_core.InfeasibleError):
        least = re.search(r"needs .*\((\d+) bytes\)$", text)
        return errors.InfeasibleError(text, least_bytes=int(least[1]) if least else None)
    if isinstance(error, outsize_core.BadInputError):
        return errors.BadInputError(text)
    if isinstance(error, outsize_core.StepError):
        return errors.StepError(text, undone=error.undone, mixed=error.mixed)
    if isinstance(error, outsize_core.DeviceError):
        return errors.DeviceError(text)
    return errors.OutsizeError(f"internal error, please report it: {text}")
