"""A planned step that is interrupted, in a process of its own: `interrupted_step.py ROLLBACK SIGNALS`.

ROLLBACK is 0 or 1; SIGNALS how many SIGINTs come while the fourth step runs. Prints what became of it as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

import torch
from parity import same
from step_models import mlp
from step_parity import plan_of, state_now

import outsize

PAUSE_S = 0.25  # between signals: several ops


def _send(first_after_s: float, signals: int, sent: list[float]) -> None:
    time.sleep(first_after_s)
    for index in range(signals):
        if index:
            time.sleep(PAUSE_S)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)


def _equal(wanted: dict[str, Any], had: dict[str, Any]) -> bool:
    return wanted.keys() == had.keys() and all(same(wanted[name], had[name]) for name in wanted)


def main(rollback: bool, signals: int) -> None:
    plain, run = (mlp("adamw", depth=8, width=512, batch=2048) for _ in range(2))
    step = plan_of(run, budget="70%", rollback=rollback)
    for each, call in ((plain, plain.step), (run, step)):
        torch.manual_seed(1)
        for batch in each.batches[:2]:  # each with a capture and a plan of its own
            call(*batch)
        begun = time.monotonic()
        call(*each.batches[2])
        took = time.monotonic() - begun
    before, generator = state_now(run), torch.get_rng_state()
    sent: list[float] = []
    sender = threading.Thread(target=_send, args=(0.2 * took, signals, sent))
    report: dict[str, Any] = {"raised": "", "context": "", "next": ""}
    sender.start()
    try:
        step(*run.batches[3])
    except KeyboardInterrupt as interrupt:
        report["raised"] = "KeyboardInterrupt"
        report["context"] = str(interrupt.__context__ or "")
        report["seconds"] = time.monotonic() - sent[0]
    sender.join()
    after = state_now(run)
    report["untouched"] = _equal(before, after)
    torch.set_rng_state(generator)  # both use the one generator
    plain.step(*plain.batches[3])
    wanted = state_now(plain)
    report["finished"] = _equal(wanted, after)
    torch.set_rng_state(generator)
    try:
        step(*run.batches[3])
        report["next"] = "equal" if _equal(wanted, state_now(run)) else "ran"
    except outsize.PoisonedError as error:
        report["next"] = str(error)
    report["handler"] = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    print(json.dumps(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1] == "1", int(sys.argv[2]))
