"""The planned side of a comparison: the same workload, its step decorated with `outsize.step`.

Run by the driver as `python -m outsize.bench.planned`.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch

from outsize.forecast import Forecast

from .process import Channel, Fields, Handler, memory
from .trainer import Trainer

# outsize.step, or what stands in for it in tests of the bench.
Decorator = Callable[..., Callable[[Callable[..., torch.Tensor]], Any]]


def forecast_fields(forecast: Forecast) -> Fields:
    return asdict(forecast) | {"gap": forecast.gap, "recomputed_ops": forecast.recomputed_ops}


def step_options(fields: Mapping[str, Any]) -> Fields:
    """What is passed on to `outsize.step`: only what was asked for."""
    names = ("budget", "host", "disk", "planner", "machine", "link")
    return {name: fields[name] for name in names if fields.get(name) is not None}


class PlannedTrainer(Trainer):
    """Answers `check`, `prepare`, `plan_next` and `close` too."""

    def __init__(self, decorator: Decorator, channel: Channel) -> None:
        self._decorator = decorator
        self._channel = channel
        self.planned_step: Any = None

    def handlers(self) -> dict[str, Handler]:
        return super().handlers() | {
            "check": self.check,
            "prepare": self.prepare,
            "plan_next": self.plan_next,
            "close": self.close,
        }

    def _decorate(self, fields: Fields) -> Any:
        decorated = self._decorator(
            self.workload.model,
            self.workload.optimizer,
            log=self._channel.note,
            **step_options(fields),
        )
        return decorated(self.workload.train_step)

    def check(self, fields: Fields) -> Fields:
        """Are these options ones that `outsize.step` takes? Said before anything long is run."""
        self._decorate(fields)
        return {}

    def prepare(self, fields: Fields) -> Fields:
        """Captures and plans the first step, and runs nothing."""
        begin = time.perf_counter()
        self.planned_step = self._decorate(fields)
        forecast = self.planned_step.prepare(self.workload.make_batch(self.index))
        self.step = self.planned_step
        return self._planned(forecast, time.perf_counter() - begin)

    def plan_next(self, fields: Fields) -> Fields:
        """The same for the step to come, whose plan may be another one; nothing if it has one."""
        begin = time.perf_counter()
        forecast = self.planned_step.prepare(self.workload.make_batch(self.index))
        return self._planned(forecast, time.perf_counter() - begin)

    def _planned(self, forecast: Forecast, seconds: float) -> Fields:
        # What planning has let go of is no part of what the process needs: not in the base of its growth.
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        return {
            "forecast": forecast_fields(forecast),
            "captures": self.planned_step.captures,
            "seconds": seconds,
            "memory": memory(),
        }

    def train(self, fields: Fields) -> Fields:
        reply = super().train(fields)
        record = self.planned_step.last
        reply["captures"] = self.planned_step.captures
        reply["record"] = {
            "step_s": record.step_s,
            "peak_bytes": record.peak_bytes,
            "live_peak_bytes": record.live_peak_bytes,
            "moved": record.moved,
            "swapped": record.swapped,
            "recomputed": record.recomputed,
            "recomputed_ops": record.recomputed_ops,
            "forecast": forecast_fields(record.forecast),
        }
        if fields.get("timeline"):
            reply["timeline"] = record.timeline
        else:
            del reply["record"]["forecast"]["timeline"]
        return reply

    def close(self, fields: Fields) -> Fields:
        """Gives the parameters back to ordinary memory."""
        self.planned_step.close()
        self.step = self.workload.train_step
        return {"memory": memory()}


def main() -> None:
    import outsize

    channel = Channel()
    channel.serve(PlannedTrainer(outsize.step, channel).handlers())


if __name__ == "__main__":
    main()
