"""Ctrl-C in a planned step: undone with rollback, else finished first; a second one poisons."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from step_models import mlp
from step_parity import plan_of, unchanged

from outsize.interrupts import Interrupts

SCRIPT = Path(__file__).with_name("interrupted_step.py")


def _interrupted(rollback: bool, signals: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(int(rollback)), str(signals)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert report["raised"] == "KeyboardInterrupt" and report["handler"], report
    return report


def test_with_rollback_the_step_stops_and_is_undone() -> None:
    report = _interrupted(rollback=True, signals=1)
    assert "interrupted before it began (the step was undone)" in report["context"], report
    assert report["untouched"] and not report["finished"]
    assert report["seconds"] < 2, report  # one, and what else runs on the machine
    assert report["next"] == "equal"


def test_without_rollback_the_step_is_finished_first() -> None:
    report = _interrupted(rollback=False, signals=1)
    assert report["context"] == "" and report["finished"], report
    assert not report["untouched"] and report["next"] == "ran"


def test_without_rollback_a_second_one_stops_it() -> None:
    report = _interrupted(rollback=False, signals=2)
    assert "interrupted before it began" in report["context"], report
    # Before the first update it is undone all the same, and the next call runs.
    assert not report["finished"]
    if report["untouched"]:
        assert report["next"] == "equal"
    else:
        assert "interrupted before it began) and left a mix of two steps" in report["next"]


def test_what_another_signals_handler_raises_stops_the_step() -> None:
    class Late(Exception):
        pass

    def late(*_: object) -> None:
        raise Late

    run = mlp("adamw", depth=1)
    step = plan_of(run, budget="100%", rollback=True)
    for batch in run.batches[:2]:
        step(*batch)
    before = signal.signal(signal.SIGUSR1, late)
    try:
        with unchanged(run), pytest.raises(Late):
            interrupting = Interrupts.__call__

            def pressed(self: Interrupts) -> bool:
                os.kill(os.getpid(), signal.SIGUSR1)
                return interrupting(self)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Interrupts, "__call__", pressed)
                step(*run.batches[2])
    finally:
        signal.signal(signal.SIGUSR1, before)
    step(*run.batches[2])


def test_handlers_are_left_alone_outside_the_main_thread_and_where_there_are_none() -> None:
    def enter() -> None:
        with Interrupts(1):
            seen.append(signal.getsignal(signal.SIGINT))

    seen: list[Any] = []
    there = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [there]
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        enter()
    finally:
        signal.signal(signal.SIGINT, ignored)
    assert seen == [there, signal.SIG_IGN]
