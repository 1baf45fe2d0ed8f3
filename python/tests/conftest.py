"""Tests of the Python package run on one thread: many small ops share a machine with others.

What they measure and plan is kept for the session in a folder of their own, apart from the user's.
"""

import os
from collections.abc import Iterator

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = os.environ.get("OUTSIZE_CACHE")
    os.environ["OUTSIZE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["OUTSIZE_CACHE"]
    else:
        os.environ["OUTSIZE_CACHE"] = before
