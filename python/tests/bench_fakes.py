"""Stand-ins for tests of the bench: a planned worker that plans nothing, and a tiny workload.

Run as a script this is the planned worker, with a decorator that runs the plain step and states made-up
records. What it does wrong, if anything, is its first argument: `wrong` changes one bit of a parameter
after the second step, states peaks one byte above the budget, counts neither copies nor reruns and maps a
MiB more than budget and host slab; `infeasible` refuses to plan.
"""

from __future__ import annotations

import copy
import mmap
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

THIS_FILE = Path(__file__).resolve()
WORKLOAD = f"{THIS_FILE}:tiny"


def tiny() -> tuple[Any, ...]:
    """A net with dropout and batch norm; about 25 MB of tensors at its peak."""
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 1024),
        torch.nn.BatchNorm1d(1024),
        torch.nn.Dropout(0.1),
        torch.nn.Linear(1024, 8),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def train_step(batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def make_batch(index: int) -> torch.Tensor:
        return torch.randn(1024, 64, generator=torch.Generator().manual_seed(index))

    return model, optimizer, train_step, make_batch


def fake_decorator(fault: str) -> Callable[..., Any]:
    from outsize.errors import InfeasibleError
    from outsize.forecast import Forecast

    class FakeStep:
        """Has the attributes of a planned step."""

        def __init__(self, model: Any, budget: int, step: Callable[[Any], torch.Tensor]) -> None:
            self.model, self.budget, self.step = model, budget, step
            self.count = 0
            self.captures = 0
            self.arena: mmap.mmap | None = None
            self.last: SimpleNamespace | None = None

        def forecast(self, first: bool) -> Forecast:
            third = self.budget // 3
            return Forecast(
                planner="outsize",
                step_s=0.02 if first else 0.01,
                compute_s=0.005,
                bound_s=0.004,
                peak_bytes=self.budget,
                host_bytes=1000,
                disk_bytes=0,
                floor_bytes=self.budget // 2,
                unplanned_peak_bytes=8 * self.budget,
                moved={"out": 1000, "in": 2000, "write": 0, "read": 0},
                swapped={"parameter": 300, "gradient": 300, "optimizer_state": 400},
                recomputed={"aten.bernoulli_.float": 2, "aten.mul.Tensor": 1},
                runtime_bytes=4096,
                planning_s=0.1,
                timeline=[(0, third), (2_000_000, 3 * third), (9_000_000, third)],
            )

        def prepare(self, batch: Any) -> Forecast:
            if fault == "infeasible":
                raise InfeasibleError(f"the floor is {2 * self.budget} bytes, budget {self.budget}")
            self.captures = min(self.count + 1, 2)  # the second step has optimizer state
            # As a capture that measures its ops, it leaves kernels and threads warm, and nothing else.
            with torch.random.fork_rng():
                copy.deepcopy(self.model)(batch).sum().backward()
            if self.arena is None:
                more = (1 << 20) if fault == "wrong" else 0
                self.arena = mmap.mmap(-1, self.budget + more)
                self.arena.write(bytes(self.budget + more))
            return self.forecast(first=self.count == 0)

        def __call__(self, batch: Any) -> torch.Tensor:
            loss = self.step(batch)
            self.count += 1
            if self.count == 2 and fault == "wrong":
                weight = self.model[3].weight.data
                weight[0, 5] = torch.nextafter(weight[0, 5], torch.tensor(torch.inf))
            peak = self.budget + 1 if fault == "wrong" else self.budget - 64
            forecast = self.forecast(first=self.count == 1)
            self.last = SimpleNamespace(  # what the bench reads of a StepRecord
                step_s=0.01,
                peak_bytes=peak,
                live_peak_bytes=peak,
                moved=forecast.moved,
                swapped={} if fault == "wrong" else forecast.swapped,
                recomputed={} if fault == "wrong" else forecast.recomputed,
                recomputed_ops=3,
                forecast=forecast,
                timeline=forecast.timeline,
            )
            return loss

        def close(self) -> None:
            self.last = None

    def decorator(
        model: Any,
        optimizer: Any,
        budget: int,
        log: Callable[[str], None],
        host: Any = None,
        planner: Any = None,
    ) -> Callable[..., Any]:
        log(f"{budget} bytes")
        return lambda step: FakeStep(model, budget, step)

    return decorator


if __name__ == "__main__":
    from outsize.bench.planned import PlannedTrainer
    from outsize.bench.process import Channel

    channel = Channel()
    channel.serve(PlannedTrainer(fake_decorator(sys.argv[1]), channel).handlers())
