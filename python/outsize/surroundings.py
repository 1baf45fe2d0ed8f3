"""What profiles and plans depend on beside the step itself: PyTorch's version, threads, the processor."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from . import cache

# Fields of a graph that say where it was captured, not what it does.
_WHERE_CAPTURED = ("torch_version", "threads")


def cpu_name() -> str:
    """The processor's, as the kernel has it."""
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "unknown"


def surroundings() -> dict[str, str]:
    """This process's, in words."""
    count = torch.get_num_threads()
    return {
        "PyTorch": f"PyTorch {torch.__version__}",
        "threads": f"{count} thread{'' if count == 1 else 's'}",
        "CPU": f"a {cpu_name()}",
    }


def say_if_planned_elsewhere(graph: dict[str, Any], log: Callable[[str], None]) -> None:
    """Says so where this step was planned before, but never in these surroundings: nothing kept then is used."""
    step = {name: value for name, value in graph.items() if name not in _WHERE_CAPTURED}
    key = cache.digest_of(json.dumps(step, sort_keys=True))
    now = surroundings()
    entry = cache.load("surroundings", key, log) or {"seen": []}
    seen: list[dict[str, str]] = entry["seen"]
    if now in seen:
        return
    if seen:
        changed = [name for name in now if now[name] != seen[-1].get(name)]
        log(
            f"planned before with {_words(seen[-1], changed)}; this is {_words(now, changed)}: "
            "profiling and planning again"
        )
    cache.store("surroundings", key, {"seen": [*seen, now]}, log)


def _words(where: dict[str, str], names: list[str]) -> str:
    return ", ".join(where.get(name, f"no known {name}") for name in names)
