"""Splitting large ops before planning, where the budget asks for it: the same bits from smaller working sets.

    split = split_for(graph_text, profile_text, device_bytes, profile, use_cache=True, log=print)
    if split is not None:
        graph_text, profile_text = split

Ids of storages, values and scalars stay what they are in the graph given; only the list of ops changes, and
new ids come after the old.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import outsize_core

from .core import translated

# A step whose largest op needs less than this share of the budget is planned as it is: splits cost
# dispatches, and planners do without them.
SHARE_LEFT_ALONE = 0.55
# What an op may need at most once there are splits at all, as a share of the budget.
SHARE_WANTED = 0.3


def split_for(
    graph_text: str,
    profile_text: str,
    device_bytes: int,
    profile: Callable[[dict[str, Any]], tuple[str, str]],
    *,
    use_cache: bool,
    log: Callable[[str], None],
) -> tuple[str, str] | None:
    """The graph and profile with the ops split that the budget of `device_bytes` is tight for, or None.

    profile: measures a graph and returns it with its profile. Each distinct cut is run once on this machine,
    and left out unless its bits are equal.
    """
    costs = json.loads(profile_text)["ops"]
    workspaces = [cost.get("workspace_bytes", 0) for cost in costs]
    with translated():
        held = outsize_core.held_bytes(graph_text)
        largest = max((h + w for h, w in zip(held, workspaces)), default=0)
        if largest <= SHARE_LEFT_ALONE * device_bytes:
            return None
        made = outsize_core.split(
            graph_text,
            {
                "largest_bytes": max(1, int(SHARE_WANTED * device_bytes)),
                "workspace_bytes": workspaces,
                "use_cache": use_cache,
            },
        )
    if not made["cuts"]:
        return None
    pieces = sum(cut["pieces"] for cut in made["cuts"])
    log(
        f"split {len(made['cuts'])} ops into {pieces}, bits proved equal: "
        f"the largest needed {largest / 1e6:.1f} MB of a budget of {device_bytes / 1e6:.1f} MB"
    )
    why = Counter(refused["why"] for refused in made["refused"])
    for reason, count in why.items():
        log(f"{count} ops were not split: {reason}")
    return profile(json.loads(made["graph"]))
