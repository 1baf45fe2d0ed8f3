"""Processes that take turns: each waits for one JSON line, does what it says, and answers with one.

    driver                                   worker
    worker.request("step", index=3)   ->     {"do": "step", "index": 3}
                                      <-     {"note": "planning"}            any number of these, then
    {"loss": …, "step_s": …}          <-     {"loss": …, "step_s": …}

Workers answer on the stdout they were given; what libraries print there goes to stderr, a log file.
A worker ends when its stdin does. Nothing here imports Outsize: the unplanned processes load this file.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

Fields = dict[str, Any]
Handler = Callable[[Fields], Fields]
SAMPLE_S = 0.1


class WorkerError(Exception):
    """A worker's own error, or its death.

    `doing` is the request it failed at; `kinds` are the names of the error's type and its bases, or
    `died`, or `timeout`.
    """

    def __init__(self, worker: str, doing: str, kinds: Sequence[str], message: str) -> None:
        super().__init__(f"{worker}, {doing}: {kinds[0]}: {message}")
        self.worker = worker
        self.doing = doing
        self.kinds = list(kinds)
        self.message = message


def memory(process_id: int | str = "self") -> dict[str, int]:
    """Bytes of a process by kind, from /proc: anonymous, shared (memfd too), file pages, data mapped."""
    wanted = {
        "RssAnon": "anonymous",
        "RssShmem": "shared",
        "RssFile": "file",
        "VmData": "data",
    }
    sizes: dict[str, int] = {}
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        key, _, rest = line.partition(":")
        if key in wanted:
            sizes[wanted[key]] = int(rest.split()[0]) * 1024
    return sizes


class Channel:
    """A worker's end: what it prints from now on goes to stderr, and answers to the driver."""

    def __init__(self) -> None:
        self._replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def note(self, text: str) -> None:
        """Tells the driver how a long request goes on."""
        self._write({"note": text})

    def serve(self, handlers: Mapping[str, Handler]) -> None:
        """Answers one request after another until stdin ends or `end` was answered."""
        for line in sys.stdin:
            fields = json.loads(line)
            name = fields.pop("do")
            try:
                if name not in handlers:
                    raise ValueError(f"no request {name!r}; known: {', '.join(handlers)}")
                reply = handlers[name](fields)
            except Exception as error:  # all errors are the driver's to judge
                traceback.print_exc()
                message = str(error) or type(error).__name__
                kinds = [base.__name__ for base in type(error).__mro__]
                reply = {"error": {"kinds": kinds, "message": message}}
            self._write(reply)
            if name == "end":
                break

    def _write(self, fields: Fields) -> None:
        self._replies.write(json.dumps(fields) + "\n")
        self._replies.flush()


class Worker:
    """The driver's end of a worker process. One owner thread; use as a context manager."""

    def __init__(
        self, name: str, command: list[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "w") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(environment),
                start_new_session=True,
            )
        self._unread = b""
        self._doing = "start"
        self.listen: Callable[[str], None] = lambda note: None  # is told the worker's notes
        self.samples: list[dict[str, int]] = (
            []
        )  # of memory(), taken while `receive(sample=True)` waits

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def request(
        self, do: str, timeout_s: float = 900, sample: bool = False, **fields: Any
    ) -> Fields:
        """Sends a request and waits for its answer. Raises WorkerError where that is an error."""
        self.send(do, **fields)
        return self.receive(timeout_s, sample)

    def send(self, do: str, **fields: Any) -> None:
        """Sends a request; `receive` must follow before the next one."""
        assert self._process.stdin is not None
        self._doing = do
        try:
            self._process.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death() from None

    def receive(self, timeout_s: float = 900, sample: bool = False) -> Fields:
        """The answer to what was sent. With `sample`, notes the process's memory while it waits."""
        deadline = time.monotonic() + timeout_s
        while True:
            reply = self._next_line(deadline, timeout_s, sample)
            if "note" not in reply:
                break
            self.listen(str(reply["note"]))
        if "error" in reply:
            error = reply["error"]
            raise WorkerError(self.name, self._doing, error["kinds"], error["message"])
        return reply

    def _next_line(self, deadline: float, timeout_s: float, sample: bool) -> Fields:
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0:
                self.stop()
                silence = f"no answer in {timeout_s:.0f} s"
                raise WorkerError(self.name, self._doing, ["timeout"], silence)
            ready, _, _ = select.select([output], [], [], min(left, SAMPLE_S) if sample else left)
            if ready:
                read = os.read(output, 1 << 20)
                if not read:
                    raise self._death()
                self._unread += read
            elif sample:
                with contextlib.suppress(OSError):  # it may be gone by now
                    self.samples.append(memory(self._process.pid))
        line, _, self._unread = self._unread.partition(b"\n")
        fields: Fields = json.loads(line)
        return fields

    def memory(self) -> dict[str, int]:
        """Bytes of the process now."""
        return memory(self._process.pid)

    def kill(self) -> None:
        """Ends the process, whatever it is doing; whoever waits for its answer gets an error."""
        if self._process.poll() is None:
            self._process.kill()

    def stop(self) -> None:
        """Ends the process and lets go of its pipes. May be called again."""
        self.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _death(self) -> WorkerError:
        status = self._process.wait()
        lines = [
            line for line in self._log.read_text(errors="replace").splitlines() if line.strip()
        ]
        last = lines[-1] if lines else "nothing on stderr"
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return WorkerError(self.name, self._doing, ["died"], f"{how}: {last}")
