"""Byte budgets as people write them: ``6GiB``, ``6GB`` (decimal), ``1048576``, ``25%`` of a known peak."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .errors import BadInputError

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


def parse_bytes(budget: str | int | float, peak_bytes: int | None = None) -> int:
    """Returns `budget` in bytes.

    `peak_bytes` is what a percentage refers to; without one a percentage is an error.

    >>> parse_bytes("1.5KiB"), parse_bytes("2MB"), parse_bytes("25%", 400)
    (1536, 2000000, 100)
    """
    if isinstance(budget, bool) or not isinstance(budget, (str, int, float)):
        raise BadInputError(f"budget: wanted bytes such as '6GiB' or 6442450944, had {budget!r}")
    if isinstance(budget, (int, float)):
        value = float(budget)
        if value != int(value) or value <= 0:
            raise BadInputError(f"budget: wanted a positive whole number of bytes, had {budget!r}")
        return int(budget)
    text = budget.strip()
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*|%)", text)
    if match is None or (match[2] != "%" and match[2].lower() not in _UNITS):
        raise BadInputError(
            f"budget: can't read {budget!r}; wanted bytes such as '6GiB', '6GB', '1048576' or '25%'"
        )
    number = float(match[1])
    if match[2] == "%":
        if peak_bytes is None:
            raise BadInputError(f"budget: {budget!r} is a share of a peak that is not known here")
        size = int(number / 100.0 * peak_bytes)
    else:
        size = int(number * _UNITS[match[2].lower()])
    if size <= 0:
        raise BadInputError(f"budget: wanted more than 0 bytes, had {budget!r}")
    return size


def format_bytes(size: int) -> str:
    """`size` for people: three digits and a decimal unit.

    >>> format_bytes(551_000_000)
    '551 MB'
    """
    value = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 1000 or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.3g} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def disk_folder(folder: str | os.PathLike[str]) -> str:
    """The folder of the disk tier, absolute, once it is known to be one that can be written."""
    if not isinstance(folder, (str, os.PathLike)):
        raise BadInputError(f"disk: wanted a folder such as '/scratch', had {folder!r}")
    path = Path(folder).expanduser().absolute()
    if not path.exists():
        raise BadInputError(f"disk: there is no folder {path}: make it, or name another")
    if not path.is_dir():
        raise BadInputError(f"disk: {path} is a file; wanted a folder for the tier's own file")
    if not os.access(path, os.W_OK | os.X_OK):
        raise BadInputError(f"disk: nothing can be written in {path}: name a folder of yours")
    return str(path)


def available_disk_bytes(folder: str) -> int:
    """Bytes that the file system of `folder` still has for this user."""
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize


def available_host_bytes() -> int:
    """Bytes of RAM this process may still take: the machine's free memory, or its cgroup's room."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    limit_file = Path("/sys/fs/cgroup/memory.max")
    used_file = Path("/sys/fs/cgroup/memory.current")
    if limit_file.exists() and used_file.exists():
        limit = limit_file.read_text().strip()
        if limit != "max":
            available = min(available, int(limit) - int(used_file.read_text()))
    return max(available, 0)
