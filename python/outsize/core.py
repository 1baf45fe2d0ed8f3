"""The seam to the C++ core: its errors arrive here as `outsize.errors`, with their full text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import outsize_core

from . import errors


@contextmanager
def translated() -> Iterator[None]:
    """Raises the core's errors as Outsize's own."""
    try:
        yield
    except outsize_core.InfeasibleError as error:
        raise errors.InfeasibleError(str(error)) from None
    except outsize_core.BadInputError as error:
        raise errors.BadInputError(str(error)) from None
    except outsize_core.StepError as error:
        raise errors.StepError(str(error)) from None
    except outsize_core.DeviceError as error:
        raise errors.DeviceError(str(error)) from None
