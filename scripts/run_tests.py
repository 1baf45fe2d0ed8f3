#!/usr/bin/env python3
"""Runs the test programs, pytest and other checks, and adds up what they counted.

    scripts/run_tests.py                                   C++ (build/bin/tests) and Python tests
    scripts/run_tests.py --no-python --only graph,plan     two folders' C++ tests
    scripts/run_tests.py --no-cpp tests/test_x.py -k name  pytest alone; what is left goes to pytest
    scripts/run_tests.py --check 'layers=scripts/check_layers.py'   each check counts as one test
    scripts/run_tests.py --sum build/results/*.json        adds up earlier runs (from --results)

The last line is `N passed, N failed, N skipped`. Exit status 1 when anything failed or nothing ran.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEARTBEAT_S = 30
PYTEST_NO_TESTS = 5


@dataclass
class Suite:
    """What one program counted."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    skips: list[str] = field(default_factory=list)

    def line(self) -> str:
        counts = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"
        return f"{self.name}: {counts} ({self.seconds:.1f} s)"


class Running:
    """Names of what runs now; says so every half minute, so that a log never falls silent."""

    def __init__(self) -> None:
        self._names: dict[str, float] = {}  # name -> start; guarded by _lock
        self._lock = threading.Lock()
        threading.Thread(target=self._beat, daemon=True).start()

    def start(self, name: str) -> None:
        with self._lock:
            self._names[name] = time.monotonic()

    def stop(self, name: str) -> None:
        with self._lock:
            self._names.pop(name, None)

    def _beat(self) -> None:
        while True:
            time.sleep(HEARTBEAT_S)
            with self._lock:
                now = time.monotonic()
                names = [f"{name} ({now - since:.0f} s)" for name, since in self._names.items()]
            if names:
                print(f"  ... running: {', '.join(names)}", flush=True)


def run_command(
    command: list[str] | str, timeout_s: float, environment: dict[str, str], echo: bool = False
) -> tuple[int, str]:
    """Runs a command in its own process group; at the time limit the whole group is killed.

    Returns the exit status (negative signal number where one ended it) and stdout with stderr.
    """
    with tempfile.TemporaryFile(mode="w+", errors="replace") as output:
        process = subprocess.Popen(
            command,
            shell=isinstance(command, str),
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=None if echo else output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        note = ""
        try:
            status = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            note = f"\nkilled after {timeout_s:.0f} s\n"
            os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        output.seek(0)
        return status, output.read() + note


def without_aslr(command: list[str]) -> list[str]:
    """ThreadSanitizer of GCC 12 dies under wide address randomisation; turn that off where we may."""
    prefix = ["setarch", platform.machine(), "-R"]
    try:
        allowed = subprocess.run(prefix + ["true"], capture_output=True).returncode == 0
    except OSError:
        allowed = False
    return prefix + command if allowed else command


def skip_reason(output: str, name: str) -> str:
    """What GTEST_SKIP was given, which GoogleTest prints but leaves out of its report."""
    begin = output.find(f"[ RUN      ] {name}\n")
    end = output.find(f"[  SKIPPED ] {name} ", begin)
    match = re.search(r": Skipped\n(.*)", output[begin:end], re.DOTALL) if begin >= 0 else None
    return " ".join(match.group(1).split()) if match else "no reason given"


def parse_gtest_json(report: dict, output: str, suite: Suite) -> None:
    for group in report.get("testsuites", []):
        for test in group.get("testsuite", []):
            name = f"{group['name']}.{test['name']}"
            if test.get("failures"):
                suite.failed += 1
                suite.failures.append(name)
            elif test.get("result") == "SKIPPED":
                suite.skipped += 1
                suite.skips.append(f"{name}: {skip_reason(output, name)}")
            elif test.get("status") == "RUN":
                suite.passed += 1


def run_gtest(program: Path, arguments: argparse.Namespace, running: Running) -> tuple[Suite, str]:
    """Runs one GoogleTest program. Returns its counts and what to print when it failed."""
    suite = Suite(program.name)
    environment = dict(os.environ, OUTSIZE_LONG="1" if arguments.long else "")
    environment.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
    environment.setdefault("TSAN_OPTIONS", "halt_on_error=1:second_deadlock_stack=1")
    running.start(program.name)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [str(program), f"--gtest_output=json:{report}", "--gtest_brief=0"]
        if arguments.gtest_filter:
            command.append(f"--gtest_filter={arguments.gtest_filter}")
        if arguments.no_aslr:
            command = without_aslr(command)
        status, output = run_command(command, arguments.timeout, environment)
        if report.exists() and report.stat().st_size:
            parse_gtest_json(json.loads(report.read_text()), output, suite)
        else:
            # It died before it could report; count from what it had printed.
            suite.passed = len(re.findall(r"^\[       OK \] ", output, re.MULTILINE))
            lines = re.findall(r"^\[  FAILED  \] (\S+) \(\d+ ms\)", output, re.MULTILINE)
            suite.failed = len(lines)
            suite.failures += lines
            begun = re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE)
            suite.failed += 1
            last = begun[-1] if begun else "before its first test"
            suite.failures.append(f"{program.name} ended with status {status} in {last}")
        shown = only_failing_parts(output) if suite.failed else ""
        if status != 0 and not suite.failed:
            # Every test passed and yet: a leak, say. Nobody knows whose, so show all.
            suite.failed = 1
            suite.failures.append(f"{program.name} exited with status {status}")
            shown = output
    suite.seconds = time.monotonic() - begin
    running.stop(program.name)
    return suite, shown


def only_failing_parts(output: str) -> str:
    """Of a GoogleTest log, what was printed by tests that did not pass, and all outside tests."""
    kept: list[str] = []
    current: list[str] | None = None
    for line in output.splitlines():
        if line.startswith("[ RUN      ]"):
            if current is not None:
                kept += current
            current = [line]
        elif line.startswith(("[       OK ]", "[  SKIPPED ]")):
            current = None
        elif line.startswith("[  FAILED  ]") and current is not None:
            kept += current + [line]
            current = None
        elif current is not None:
            current.append(line)
        elif not line.startswith(("[-----", "[=====", "[  PASSED")):
            kept.append(line)
    return "\n".join(kept + (current or []))


def run_all_gtests(arguments: argparse.Namespace, running: Running) -> list[Suite]:
    folder = ROOT / arguments.bin_dir
    programs = sorted(path for path in folder.glob("*_test") if os.access(path, os.X_OK))
    if arguments.only:
        wanted = {f"outsize_{name}_test" for name in arguments.only.split(",")}
        unknown = wanted - {program.name for program in programs}
        if unknown:
            sys.exit(f"run_tests: not in {folder}: {', '.join(sorted(unknown))}")
        programs = [program for program in programs if program.name in wanted]
    suites = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        futures = [pool.submit(run_gtest, program, arguments, running) for program in programs]
        for done, future in enumerate(as_completed(futures), start=1):
            suite, output = future.result()
            suites.append(suite)
            if output:
                print(output)
            print(f"[{done}/{len(programs)}] {suite.line()}", flush=True)
    return suites


def run_pytest(arguments: argparse.Namespace, running: Running) -> Suite | None:
    """Runs pytest with its own output shown; None where there is nothing to collect."""
    if not arguments.pytest_arguments and not any(
        next((ROOT / folder).rglob("test_*.py"), None) for folder in ("tests", "python/tests")
    ):
        return None
    suite = Suite("pytest")
    environment = dict(os.environ, OUTSIZE_LONG="1" if arguments.long else "")
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), str(ROOT / "build/python")])
    python = ROOT / "build/venv/bin/python"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [str(python), "-m", "pytest", "--color=no", f"--junitxml={report}"]
        if not arguments.long:
            command += ["-m", "not long"]
        command += arguments.pytest_arguments
        begin = time.monotonic()
        running.start("pytest")
        status, output = run_command(command, arguments.timeout * 2, environment, echo=True)
        running.stop("pytest")
        suite.seconds = time.monotonic() - begin
        print(output, end="")
        if report.exists():
            for case in ElementTree.parse(report).iter("testcase"):
                name = f"{case.get('classname')}.{case.get('name')}"
                skipped = case.find("skipped")
                if case.find("failure") is not None or case.find("error") is not None:
                    suite.failed += 1
                    suite.failures.append(name)
                elif skipped is not None and skipped.get("type") != "pytest.xfail":
                    suite.skipped += 1
                    suite.skips.append(f"{name}: {skipped.get('message', 'no reason given')}")
                else:
                    suite.passed += 1
    if status not in (0, PYTEST_NO_TESTS) and not suite.failed:
        suite.failed = 1
        suite.failures.append(f"pytest exited with status {status}")
    return suite


def run_check(text: str, arguments: argparse.Namespace, running: Running) -> Suite:
    name, equals, command = text.partition("=")
    if not equals:
        sys.exit(f"run_tests: --check wants NAME=COMMAND, not {text!r}")
    suite = Suite(name)
    running.start(name)
    begin = time.monotonic()
    status, output = run_command(command, arguments.timeout, dict(os.environ), echo=False)
    suite.seconds = time.monotonic() - begin
    running.stop(name)
    if status == 0:
        suite.passed = 1
        warnings = [line for line in output.splitlines() if line.startswith("warning:")]
        print("\n".join(warnings), end="\n" if warnings else "")
    else:
        suite.failed = 1
        suite.failures.append(f"{name} (status {status}): {command}")
        lines = output.splitlines()
        print("\n".join(lines if len(lines) < 400 else ["..."] + lines[-400:]))
    print(suite.line(), flush=True)
    return suite


def summarize(suites: list[Suite]) -> int:
    print("\n--- summary " + "-" * 60)
    for suite in suites:
        print(suite.line())
    for suite in suites:
        for skip in suite.skips:
            print(f"skipped: {skip}")
    for suite in suites:
        for failure in suite.failures:
            print(f"FAILED: {suite.name}: {failure}")
    passed = sum(suite.passed for suite in suites)
    failed = sum(suite.failed for suite in suites)
    skipped = sum(suite.skipped for suite in suites)
    if passed + failed == 0:
        print("no test ran")
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed or not passed else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--bin-dir", default="build/bin/tests", help="where the C++ test programs lie"
    )
    parser.add_argument("--no-cpp", action="store_true", help="leave out the C++ test programs")
    parser.add_argument("--no-python", action="store_true", help="leave out pytest")
    parser.add_argument("--only", help="folders whose C++ tests to run, with commas")
    parser.add_argument("--gtest-filter", help="passed to the C++ test programs")
    parser.add_argument("--long", action="store_true", help="long tests too (sets OUTSIZE_LONG=1)")
    parser.add_argument("--jobs", type=int, default=2, help="C++ test programs at once (2)")
    parser.add_argument("--timeout", type=float, default=1200, help="seconds per program (1200)")
    parser.add_argument("--no-aslr", action="store_true", help="for ThreadSanitizer builds")
    parser.add_argument("--label", default="", help="put before the names of suites")
    parser.add_argument("--check", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--results", help="also write the counts as JSON to this file")
    parser.add_argument(
        "--sum", nargs="+", metavar="FILE", help="only add up these --results files"
    )
    arguments, arguments.pytest_arguments = parser.parse_known_args()

    if arguments.sum:
        suites = []
        for file in arguments.sum:
            if Path(file).exists():
                stage_suites = [Suite(**entry) for entry in json.loads(Path(file).read_text())]
                if not any(suite.passed + suite.failed for suite in stage_suites):
                    empty = f"{file}: no test ran"
                    stage_suites.append(Suite(Path(file).stem, failed=1, failures=[empty]))
                suites += stage_suites
            else:
                stage = Path(file).stem
                suites.append(Suite(stage, failed=1, failures=[f"{stage} left no results"]))
        return summarize(suites)

    running = Running()
    suites = [run_check(text, arguments, running) for text in arguments.check]
    if not arguments.check:
        if not arguments.no_cpp:
            suites += run_all_gtests(arguments, running)
        if not arguments.no_python:
            suite = run_pytest(arguments, running)
            suites += [suite] if suite else []
    for suite in suites:
        suite.name = arguments.label + suite.name
    if arguments.results:
        path = ROOT / arguments.results
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([asdict(suite) for suite in suites], indent=1) + "\n")
    return summarize(suites)


if __name__ == "__main__":
    sys.exit(main())
