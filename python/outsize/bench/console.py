"""How a comparison shows itself while it runs: lines on stdout, progress and notes on stderr."""

from __future__ import annotations

import sys
import time
from typing import Any

from tqdm import tqdm

from .comparison import Comparison, Listener
from .report import STEP_TITLE, Check, check_lines, describe_forecast, step_line, summary_lines


class Console(Listener):
    """Prints a line a step. With `quiet` stdout stays free, for JSON, and lines go to stderr."""

    def __init__(self, quiet: bool = False) -> None:
        self._output = sys.stderr if quiet else sys.stdout
        self._bar: Any = None
        self._began = time.monotonic()

    def say(self, text: str = "") -> None:
        """A line of results, above the progress bar if there is one."""
        tqdm.write(text, file=self._output)
        self._output.flush()

    def note(self, text: str) -> None:
        seconds = time.monotonic() - self._began
        tqdm.write(f"[{seconds:5.0f} s] {text}", file=sys.stderr)
        sys.stderr.flush()

    def forecast(self, comparison: Comparison) -> None:
        self.say("Before the first step:")
        self.say(describe_forecast(comparison))
        self.say()
        self.say(STEP_TITLE)
        # disable=None: no bar where stderr is not a terminal.
        self._bar = tqdm(
            total=comparison.settings.steps, unit="step", file=sys.stderr, disable=None, leave=False
        )

    def stepped(self, comparison: Comparison, index: int) -> None:
        self.say(step_line(comparison, index))
        self._bar.update()
        if index + 1 == comparison.settings.steps:
            self._bar.close()

    def conclude(self, comparison: Comparison, checks: list[Check]) -> None:
        self.say()
        for line in summary_lines(comparison) + [""] + check_lines(checks):
            self.say(line)
