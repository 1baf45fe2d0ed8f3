"""The unplanned side of a comparison: plain PyTorch, in a process that never imports Outsize.

Run as a script, `python python/outsize/bench/unplanned.py`, by the driver: its folder is loaded under
a package name of its own, so that importing it does not import Outsize, and Outsize's folders are taken
off the module path, so that nothing else can.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path

if __name__ == "__main__":
    sys.path = [entry for entry in sys.path if not (Path(entry or ".") / "outsize").is_dir()]
    _package = types.ModuleType("outsize_free_bench")
    _package.__path__ = [str(Path(__file__).parent)]
    sys.modules[_package.__name__] = _package
    __package__ = _package.__name__

import torch

from .limits import CountingAllocator, limit_data
from .process import Channel, Fields, Handler
from .trainer import Trainer


class UnplannedTrainer(Trainer):
    """Trains as the user's own loop would; the counting allocator sees every tensor."""

    def handlers(self) -> dict[str, Handler]:
        return super().handlers() | {
            "limit_allocator": self.limit_allocator,
            "limit_data": self.limit_data,
        }

    def build(self, fields: Fields) -> Fields:
        self.allocator = CountingAllocator(Path(fields["allocator"]))
        return super().build(fields)

    def limit_allocator(self, fields: Fields) -> Fields:
        """From now on tensors may hold `bytes` at once."""
        self.allocator.set_limit(int(fields["bytes"]))
        return {}

    def limit_data(self, fields: Fields) -> Fields:
        """From now on the process may have `bytes` of heap and private mappings."""
        limit_data(int(fields["bytes"]))
        return {}

    def train(self, fields: Fields) -> Fields:
        recording = bool(fields.get("timeline"))
        if recording:
            self.allocator.start_timeline()
        try:
            reply = super().train(fields)
        finally:
            timeline = self.allocator.stop_timeline() if recording else None
        reply["peak_bytes"] = self.allocator.peak_bytes
        if timeline is not None:
            reply["timeline"] = timeline
        return reply

    def end(self, fields: Fields) -> Fields:
        foreign = [
            name for name in sys.modules if name.partition(".")[0] in ("outsize", "outsize_core")
        ]
        return {"outsize_imported": bool(foreign), "torch": torch.__version__}


if __name__ == "__main__":
    Channel().serve(UnplannedTrainer().handlers())
