#!/usr/bin/env python3
"""Checks who includes whom: the "may include" column of docs/design.md, section 4.

    scripts/check_layers.py [ROOT]

Prints one line per forbidden include (file:line: why) and exits 1 if there is any. Long files are
warned of, and do not fail.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

BELOW_PLANNERS = ["base", "graph", "profile", "plan", "pack", "simulate", "split", "bound"]
CORE = BELOW_PLANNERS + ["planners", "tiers", "run", "share", "report"]

# Folder -> the other folders under outsize/ whose headers it may include.
ALLOWED: dict[str, list[str]] = {
    "base": [],
    "graph": ["base"],
    "profile": ["base", "graph"],
    "plan": ["base", "graph"],
    "pack": ["base"],
    "simulate": ["base", "graph", "profile", "plan"],
    "split": ["base", "graph", "profile"],
    "bound": ["base", "graph", "profile", "plan"],
    "planners": BELOW_PLANNERS,
    "tiers": ["base"],
    "run": ["base", "graph", "profile", "plan", "tiers"],
    "share": ["base"],
    "report": ["base", "graph", "profile", "plan", "simulate"],
    "cli": CORE,
    "torch": ["base", "graph", "profile", "split", "plan", "tiers", "run"],
    "bind": CORE + ["torch"],
    # Tests, fuzzers and benches that cross folders.
    "tests": CORE + ["cli"],
    "fuzz": CORE,
    "bench": CORE,
}
MAY_INCLUDE_TORCH = {"torch", "bind"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
TORCH_HEADER = re.compile(r"^(torch|ATen|c10|caffe2|pybind11)/|^Python\.h$")
SOURCE_SUFFIXES = {".h", ".cc"}
MAX_LINES = {".cc": 600, ".h": 250, ".py": 600}


def folder_of(path: Path) -> str | None:
    """The layer that a file (relative to the root) belongs to, or None if the rules don't cover it."""
    parts = path.parts
    if parts[0] == "outsize" and len(parts) > 2:
        return parts[1]
    if parts[:2] == ("python", "bind"):
        return "bind"
    if parts[0] in ("tests", "fuzz", "bench"):
        return parts[0]
    return None


def check_file(root: Path, path: Path) -> list[str]:
    """The violations in one file, as printable lines."""
    folder = folder_of(path)
    if folder is None:
        return [f"{path}: is in no known folder"] if path.parts[0] == "outsize" else []
    if folder not in ALLOWED:
        return [f"{path}: folder outsize/{folder} has no row in scripts/check_layers.py"]
    violations = []
    for number, line in enumerate((root / path).read_text().splitlines(), start=1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, target = match.groups()
        where = f"{path}:{number}"
        if TORCH_HEADER.match(target):
            if folder not in MAY_INCLUDE_TORCH:
                violations.append(f"{where}: {folder} may not include torch or Python ({target})")
        elif target.startswith("outsize/"):
            other = target.split("/")[1]
            if other != folder and other not in ALLOWED[folder]:
                violations.append(f"{where}: {folder} may not include {other} ({target})")
            if not (root / target).exists():
                violations.append(f"{where}: no such file: {target}")
        elif target.startswith("python/bind/"):
            if folder != "bind":
                violations.append(f"{where}: {folder} may not include bind ({target})")
        elif quote == '"':
            violations.append(f'{where}: include from the root: "outsize/<folder>/{target}"')
    return violations


def main(arguments: list[str]) -> int:
    root = Path(arguments[0] if arguments else Path(__file__).parent.parent).resolve()
    violations: list[str] = []
    checked = 0
    for top in ("outsize", "python", "tests", "fuzz", "bench", "scripts"):
        for file in sorted((root / top).rglob("*")):
            path = file.relative_to(root)
            if not file.is_file() or file.suffix not in MAX_LINES:
                continue
            lines = file.read_bytes().count(b"\n")
            if lines > MAX_LINES[file.suffix]:
                print(f"warning: {path}: {lines} lines, at most {MAX_LINES[file.suffix]} wanted")
            if file.suffix in SOURCE_SUFFIXES:
                checked += 1
                violations += check_file(root, path)
    for violation in violations:
        print(violation)
    print(f"layers: {checked} files, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
