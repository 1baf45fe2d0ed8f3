"""Limits for unplanned runs: a counting allocator with a limit, and the process's data limit.

Nothing here imports Outsize: the unplanned processes load this file.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import resource
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("limit_allocator.cc")


def build_allocator(folder: Path) -> Path:
    """Compiles limit_allocator.cc into `folder` unless it is there; returns the library's path."""
    import torch

    torch_folder = Path(torch.__file__).parent
    compiler = os.environ.get("CXX", "g++")
    options = [
        *("-std=c++20", "-O2", "-shared", "-fPIC"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f"-I{torch_folder / 'include'}",
        f"-L{torch_folder / 'lib'}",
        f"-Wl,-rpath,{torch_folder / 'lib'}",
    ]
    made_from = "\0".join([SOURCE.read_text(), compiler, torch.__version__, *options])
    digest = hashlib.sha256(made_from.encode()).hexdigest()[:16]
    library = folder / f"limit_allocator-{digest}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            output = Path(scratch) / library.name
            command = [compiler, *options, str(SOURCE), "-o", str(output), "-lc10"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
            os.replace(output, library)  # whole or not at all: others may build it too
    return library


class CountingAllocator:
    """Counts, in this process, the bytes of every tensor made from now on; fails past a limit.

    Once a process: it stays installed for good.
    """

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        for name in ("live", "peak", "stop_timeline"):
            getattr(self._library, f"outsize_bench_{name}").restype = ctypes.c_int64
        self._library.outsize_bench_set_limit.argtypes = [ctypes.c_int64]
        self._library.outsize_bench_install()

    def set_limit(self, size: int) -> None:
        """No more than `size` bytes at once; 0 is no limit."""
        self._library.outsize_bench_set_limit(size)

    @property
    def live_bytes(self) -> int:
        return int(self._library.outsize_bench_live())

    @property
    def peak_bytes(self) -> int:
        return int(self._library.outsize_bench_peak())

    def start_timeline(self) -> None:
        self._library.outsize_bench_start_timeline()

    def stop_timeline(self) -> list[tuple[int, int]]:
        """[(ns since start_timeline, bytes held)], a point for every change."""
        count = int(self._library.outsize_bench_stop_timeline())
        numbers = (ctypes.c_int64 * (2 * count))()
        self._library.outsize_bench_copy_timeline(numbers)
        return list(zip(numbers[0::2], numbers[1::2], strict=True))


def limit_data(size: int) -> None:
    """Sets RLIMIT_DATA: heap and private mappings of this process may not pass `size` bytes."""
    resource.setrlimit(resource.RLIMIT_DATA, (size, resource.getrlimit(resource.RLIMIT_DATA)[1]))
