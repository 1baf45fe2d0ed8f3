"""What the bench's command lines share: strict options, one JSON answer, exit statuses."""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

from .process import WorkerError

DONE, INFEASIBLE, BAD_USE, INTERNAL = 0, 1, 2, 3


class Parser(argparse.ArgumentParser):
    """Exits 2 on bad use; an unknown option is an error that names the nearest one there is."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        unknown = re.search(r"unrecognized arguments: (\S+)", message)
        chosen = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if unknown:
            word = unknown.group(1).partition("=")[0]
            options = [option for action in self._actions for option in action.option_strings]
            message = f"unknown option {word}{nearest(word, options)}"
        elif chosen:
            choices = re.findall(r"[^', ]+", chosen.group(2))
            message += nearest(chosen.group(1), choices)
        self.exit(BAD_USE, f"{self.prog}: error: {message}\n")


def nearest(word: str, known: list[str]) -> str:
    """
    >>> nearest("--budgte", ["--budget", "--model"])
    '; did you mean --budget?'
    """
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


def write_json(path: str | None, fields: dict[str, Any]) -> None:
    """To a file, or with `-` to stdout."""
    if path is None:
        return
    text = json.dumps(fields, indent=1) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        write_file(Path(path), text)


def write_file(path: Path, text: str) -> None:
    """Whole or not at all: a reader never finds half of it. A pipe or device is written to as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    beside = path.with_name(path.name + ".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def version() -> str:
    import outsize

    return str(getattr(outsize, "__version__", "unversioned"))


def status_of(error: WorkerError) -> int:
    """The exit status for a worker's error."""
    if "InfeasibleError" in error.kinds:
        return INFEASIBLE
    bad_use = {"BadInputError", "CaptureError"}
    if error.doing in ("build", "check"):  # where what the user wrote is read
        bad_use |= {"ValueError", "TypeError", "OSError"}
    return BAD_USE if bad_use & set(error.kinds) else INTERNAL
