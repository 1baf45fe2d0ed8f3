"""`make demo`: GPT-2 trained in one eighth of its memory, to the same bits, measured on the spot.

A GPT-2 of 29.68 M parameters learns Python's own standard library, in three processes that take turns:
planned inside the budget, and twice plainly. At the end every claim stands beside what was measured;
build/demo.json has the numbers and build/demo.html the picture.
"""

from __future__ import annotations

import sys

from .commands import Parser
from .comparison import BUILD_FOLDER, Settings
from .train import train

MODEL = "gpt2-30m"
SHARE = 8
HOST = "16GiB"


def main(arguments: list[str] | None = None) -> int:
    parser = Parser("python -m outsize.bench.demo", __doc__ or "")
    parser.add_argument("--steps", type=int, default=20, help="at least 3 (%(default)s)")
    parser.add_argument("--json", default=str(BUILD_FOLDER / "demo.json"), help="%(default)s")
    parser.add_argument("--html", default=str(BUILD_FOLDER / "demo.html"), help="%(default)s")
    options = parser.parse_args(arguments)
    if options.steps < 3:
        parser.error(f"--steps: wanted at least 3, had {options.steps}")
    settings = Settings(
        MODEL,
        options.steps,
        budget_of=lambda peak: peak // SHARE,
        options={"host": HOST},
        ratio_must_hold=True,
    )
    print(
        f"GPT-2 (8 layers, 512 wide, vocabulary 8192) on the standard library's sources, batch 8 x 512,"
        f" {settings.threads} threads.\nBudget: 1/{SHARE} of the unplanned peak; host tier: {HOST} in RAM.\n",
        file=sys.stderr if options.json == "-" else sys.stdout,
        flush=True,
    )
    return train(settings, True, options.json, options.html)


if __name__ == "__main__":
    sys.exit(main())
