"""Files that make a second start quick: measured machines, profiles and plans, by a digest of what they depend on."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

VERSION = 1


def cache_directory() -> Path:
    """``$OUTSIZE_CACHE``, or ``~/.cache/outsize``."""
    return Path(os.environ.get("OUTSIZE_CACHE") or Path.home() / ".cache" / "outsize")


def digest_of(*parts: str) -> str:
    """A name for what a cached thing depends on: 32 hex digits over all `parts`, in order."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode()
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.hexdigest()


def load(kind: str, key: str, log: Callable[[str], None]) -> dict[str, Any] | None:
    """The entry stored under `kind` and `key`; None if there is none, or (said through `log`) a damaged one."""
    path = cache_directory() / kind / f"{key}.json"
    try:
        text = path.read_text()
    except OSError:
        return None
    try:
        entry = json.loads(text)
        if entry["version"] != VERSION or entry["key"] != key:
            raise ValueError("another version or key")
        body: dict[str, Any] = entry["body"]
        if entry["digest"] != digest_of(json.dumps(body)):
            raise ValueError("its contents do not fit its digest")
        return body
    except (ValueError, KeyError, TypeError) as problem:
        log(f"cache: {path} is damaged or foreign ({problem}); ignored")
        return None


def store(kind: str, key: str, body: dict[str, Any], log: Callable[[str], None]) -> None:
    """Keeps `body` for later; a cache that can't be written is said through `log` and otherwise no matter."""
    directory = cache_directory() / kind
    entry = {"version": VERSION, "key": key, "digest": digest_of(json.dumps(body)), "body": body}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=directory, suffix=".tmp")
        with os.fdopen(handle, "w") as file:
            json.dump(entry, file)
        os.replace(temporary, directory / f"{key}.json")
    except OSError as problem:
        log(f"cache: can't write {directory} ({problem}); going on without")
