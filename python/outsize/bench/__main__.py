"""`python -m outsize.bench NAME …`: runs a bench by name."""

from __future__ import annotations

import importlib
import sys

from .commands import BAD_USE, DONE, nearest

BENCHES = {
    "demo": "GPT-2 in one eighth of its memory, with every claim checked",
    "train": "any model at any budget, beside the unplanned run",
    "packing": "addresses for public instances, beside other packers",
    "atp": "throughput against batch for four nets on two GPUs, beside the planners of the literature",
    "planning": "the planner on public traces, beside optima and what peers reach",
    "planners": "every planner by name on the same steps and budgets: docs/comparison.md",
    "sharing": "policies for several jobs on one memory, beside what was published",
    "remat": "recompute planners on public traces, beside what their own code reaches",
    "swapadvisor": "SwapAdvisor's figures, rebuilt, beside the paper's",
    "table": "a Markdown table of JSON files that demo and train wrote",
}


def main(arguments: list[str]) -> int:
    listed = "\n".join(f"  {name:<8} {what}" for name, what in BENCHES.items())
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: python -m outsize.bench NAME [options]\n\n{listed}")
        return DONE if arguments else BAD_USE
    name = arguments[0]
    if name not in BENCHES:
        hint = nearest(name, list(BENCHES))
        print(f"python -m outsize.bench: error: no bench {name!r}{hint}\n{listed}", file=sys.stderr)
        return BAD_USE
    module = importlib.import_module(f"outsize.bench.{name}")
    status: int = module.main(arguments[1:])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
