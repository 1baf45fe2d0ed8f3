"""What the planned and the unplanned worker have in common: a workload trained step by step on request.

Nothing here imports Outsize: the unplanned processes load this file.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch

from .digests import digest_generators, digest_state
from .models import TrainStep, Workload, build_workload
from .process import Fields, Handler, memory


def start_runtime() -> None:
    """Makes PyTorch's threads and its libraries' lasting buffers, so that what comes later is the step's."""
    weight = torch.ones(256, 256, requires_grad=True)
    (torch.ones(256, 256) @ weight).relu().sum().backward()  # type: ignore[no-untyped-call]


class Trainer:
    """Answers `build`, `step` and `digest`. Subclasses say what the step is."""

    workload: Workload
    step: TrainStep
    index: int = 0

    def handlers(self) -> dict[str, Handler]:
        return {"build": self.build, "step": self.train, "digest": self.digest, "end": self.end}

    def build(self, fields: Fields) -> Fields:
        """Makes the workload; before it the runtime's own threads and buffers."""
        torch.set_num_threads(int(fields["threads"]))
        start_runtime()
        tokens = fields.get("tokens")
        self.workload = build_workload(
            fields["model"],
            int(fields["seed"]),
            int(fields["steps"]),
            Path(tokens) if tokens else None,
        )
        self.step = self.workload.train_step
        return {
            "parameters": self.workload.parameter_count,
            "parameter_bytes": self.workload.parameter_bytes,
            "batch": self.workload.batch_size,
            "input": self.workload.input,
            "threads": torch.get_num_threads(),
            "memory": memory(),
        }

    def train(self, fields: Fields) -> Fields:
        """One step, its batch made before the clock starts."""
        batch = self.workload.make_batch(self.index)
        before = os.times()
        begin = time.perf_counter()
        loss = self.step(batch)
        step_s = time.perf_counter() - begin
        after = os.times()
        self.workload.after_step()
        self.index += 1
        return {
            "step": self.index,
            "loss": float(loss.item()).hex(),  # exact: every float32 is a float64
            "step_s": step_s,
            "cpu_s": after.user - before.user + after.system - before.system,
            "generators": digest_generators(),
            "memory": memory(),
        }

    def digest(self, fields: Fields) -> Fields:
        return {"digests": digest_state(self.workload.model, self.workload.optimizer)}

    def end(self, fields: Fields) -> Fields:
        return {}
