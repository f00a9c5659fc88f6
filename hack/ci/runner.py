"""Runs lanes side by side. A lane waits for its own programs only.

Every half a minute a line says how far each lane is. A lane that ends well is one line, with its skipped tests; the output of
one that fails is shown whole. All output is kept in build/ci. A run ends with a table, and one line with the sums of all lanes.
"""

import asyncio
import contextlib
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from hack.ci.parts import CONTROL_PLANE, ROOT, Lane

_BUILD: Final = ROOT / "build" / "ci"
# four keep two cores busy, as tests mostly wait
_AT_ONCE: Final = 4
# ends only a lane that hangs: the longest takes a quarter of it
_HANGS_AFTER_SECONDS: Final = 3600.0
# larger Go heaps: the machine has memory to spare, and tests on a control plane take an eighth less CPU time
_GOGC: Final = "400"
# Programs start hundreds of times; without this, an environment that forbids byte code files makes them compile each time.
_KEEP_BYTE_CODE: Final = {"PYTHONDONTWRITEBYTECODE": ""}
_PROGRESS_SECONDS: Final = 30.0
# at the end of pytest's lines
_PERCENT: Final = re.compile(rb"\[ *(\d+)%\]")
_SKIPPED: Final = "SKIPPED"


@dataclass(frozen=True)
class Outcome:
    """failed and passed: numbers of tests; a target of make may run none. seconds: duration. cpu_seconds: see _End."""

    lane: str
    is_ok: bool
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    cpu_seconds: float = 0.0


class _End(NamedTuple):
    """How a process ended. cpu_seconds: of itself and of all descendants whose parents waited for them."""

    status: int
    cpu_seconds: float


def run(title: str, lanes: Sequence[Lane], *, is_gate: bool) -> list[Outcome]:
    """Ends after all lanes have ended, also after a failure: one run shows all faults."""
    _BUILD.mkdir(parents=True, exist_ok=True)
    profile = "gate" if is_gate else "part"
    seed = None if is_gate else random.SystemRandom().randrange(2**32)
    print(f"{title}: {', '.join(lane.name for lane in lanes)}; to follow them: tail -f build/ci/*.log", flush=True)
    if seed is not None:
        print(f"property tests draw with --hypothesis-seed={seed}", flush=True)
    outcomes = asyncio.run(_all(lanes, {"HYPOTHESIS_PROFILE": profile}, seed))
    _show(title, outcomes)
    return outcomes


async def _all(lanes: Sequence[Lane], env: Mapping[str, str], seed: int | None) -> list[Outcome]:
    places = asyncio.Semaphore(_AT_ONCE)
    # logs by lane
    under_way: dict[str, Path] = {}

    async def one(lane: Lane) -> Outcome:
        if failed := await _build_programs(lane):
            return failed
        async with places:
            under_way[lane.name] = _log(lane)
            try:
                return await _run_lane(lane, env, seed)
            finally:
                del under_way[lane.name]

    main = asyncio.current_task()
    assert main is not None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, main.cancel)
    # each lane waits for one process at a time, in a thread
    loop.set_default_executor(ThreadPoolExecutor(max(len(lanes), 1)))
    progress = asyncio.create_task(_show_progress(under_way))
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(lane)) for lane in lanes]
    finally:
        progress.cancel()
    return [task.result() for task in running]


async def _show_progress(under_way: Mapping[str, Path]) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(_PROGRESS_SECONDS)
        lanes = ", ".join(f"{lane} {how_far(log.read_bytes())}".rstrip() for lane, log in under_way.items())
        print(f"after {time.monotonic() - began:.0f} s: {lanes or 'building programs'}", flush=True)


def how_far(output: bytes) -> str:
    """The last percentage that pytest printed; empty before the first one and for targets of make."""
    percents = _PERCENT.findall(output)
    return f"{int(percents[-1])} %" if percents else ""


def _log(lane: Lane) -> Path:
    path = _BUILD / f"{lane.name}.log"
    path.touch()
    return path


async def _build_programs(lane: Lane) -> Outcome | None:
    """Build or download missing programs of the lane's tests, without taking a slot. Returns a failure, if any."""
    names = _names(lane.programs)
    if not _lacks(names):
        return None
    log = _BUILD / f"{lane.name}-programs.log"
    print(f"{lane.name} waits for its programs, which are built or downloaded once: tail -f {log}", flush=True)
    end, seconds = await _run_logged([sys.executable, "-m", "tests.cluster", "build", *names], {}, log)
    if end.status == 0:
        print(f"{lane.name} has its programs after {seconds:.0f} s", flush=True)
        return None
    _show_failure(f"{lane.name}: its programs", seconds, log)
    return Outcome(lane.name, False, seconds, cpu_seconds=end.cpu_seconds)


def _names(programs: Sequence[str]) -> list[str]:
    if CONTROL_PLANE not in programs:
        return list(programs)
    from tests.cluster.control_plane import layout

    return [*layout.CONTROL_PLANE, *(name for name in programs if name != CONTROL_PLANE)]


def _lacks(names: Sequence[str]) -> bool:
    """Whether any is missing. Also True if this is unknown: then the build reports why."""
    if not names:
        return False
    # `.ci/run` asks for a part's name before libraries are installed
    from tests.cluster.build.binaries import missing
    from tests.cluster.errors import BinaryError

    try:
        return bool(missing(names))
    except BinaryError:
        return True


async def _run_lane(lane: Lane, env: Mapping[str, str], seed: int | None) -> Outcome:
    log, report = _log(lane), _BUILD / f"{lane.name}.xml"
    report.unlink(missing_ok=True)
    end, seconds = await _run_logged(_command(lane, report, seed), {**env, **lane.env, **_reporting(lane, report)}, log)
    outcome = _outcome(lane.name, report, seconds, end)
    if outcome.is_ok:
        _show_success(outcome, log)
    else:
        _show_failure(lane.name, seconds, log)
    return outcome


async def _run_logged(command: Sequence[str], env: Mapping[str, str], log: Path) -> tuple[_End, float]:
    """Its end, and seconds. The output goes to the log."""
    began = time.monotonic()
    with log.open("wb") as output:
        async with _process(command, env, output.fileno()) as ending:
            await asyncio.wait([ending], timeout=_HANGS_AFTER_SECONDS)
            is_hanging = not ending.done()
            if is_hanging:
                os.write(output.fileno(), f"\n{log.stem} hangs: ended after an hour\n".encode())
    end = ending.result()
    return end._replace(status=1) if is_hanging else end, time.monotonic() - began


def _show_success(outcome: Outcome, log: Path) -> None:
    print(f"{outcome.lane}: ok after {outcome.seconds:.0f} s{_numbers(outcome)}")
    skipped = [line for line in log.read_text(errors="replace").splitlines() if line.startswith(_SKIPPED)]
    print("".join(f"  {line}\n" for line in skipped), end="", flush=True)


def _show_failure(title: str, seconds: float, log: Path) -> None:
    print(f"\n===== {title}: FAILED after {seconds:.0f} s =====\n{log.read_text(errors='replace')}", flush=True)


def _command(lane: Lane, report: Path, seed: int | None) -> list[str]:
    if lane.make:
        return ["make", "--no-print-directory", *lane.make]
    draws = [] if seed is None else [f"--hypothesis-seed={seed}"]
    only = ["-m", lane.only] if lane.only else []
    return [sys.executable, "-m", "pytest", "-q", "--durations=15", *_report(report), *draws, *only, *lane.tests]


def _reporting(lane: Lane, report: Path) -> dict[str, str]:
    """The environment by which pytest below a target of make reports its numbers."""
    return {"PYTEST_ADDOPTS": shlex.join(_report(report))} if lane.make else {}


def _report(report: Path) -> list[str]:
    return [f"--junitxml={report}", "-o", "junit_family=xunit1"]


@contextlib.asynccontextmanager
async def _process(command: Sequence[str], env: Mapping[str, str], output: int) -> AsyncIterator[asyncio.Future[_End]]:
    """Run in a process group of its own: when this process ends, the whole group ends."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={"GOGC": _GOGC, **os.environ, **_KEEP_BYTE_CODE, **env},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    ending = asyncio.ensure_future(asyncio.to_thread(_wait, process))
    try:
        yield ending
    finally:
        if not ending.done():
            # like Ctrl-C: pytest stops the control plane and removes its folders
            _signal_group(process, signal.SIGINT)
            await asyncio.wait([ending], timeout=60)
        _signal_group(process, signal.SIGKILL)
        await asyncio.wait([ending])


def _wait(process: subprocess.Popen[bytes]) -> _End:
    """asyncio's processes do not show what the kernel has counted."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return _End(process.returncode, usage.ru_utime + usage.ru_stime)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _outcome(name: str, report: Path, seconds: float, end: _End) -> Outcome:
    try:
        suite = ElementTree.parse(report).getroot().find("testsuite")
    except (OSError, ElementTree.ParseError):
        suite = None
    is_ok = end.status == 0
    if suite is None:
        return Outcome(name, is_ok, seconds, cpu_seconds=end.cpu_seconds)
    tests, skipped = int(suite.get("tests", "0")), int(suite.get("skipped", "0"))
    failed = int(suite.get("failures", "0")) + int(suite.get("errors", "0"))
    return Outcome(name, is_ok, seconds, tests - skipped - failed, failed, skipped, end.cpu_seconds)


def _show(title: str, outcomes: Sequence[Outcome]) -> None:
    print(f"\n{title}:")
    for outcome in outcomes:
        verdict = "ok" if outcome.is_ok else "FAILED"
        times = f"{outcome.seconds:5.0f} s, CPU {outcome.cpu_seconds:5.0f} s"
        print(f"  {outcome.lane:16} {verdict:7} {times}{_numbers(outcome)}")
    print(closing_line(outcomes), flush=True)


def _numbers(outcome: Outcome) -> str:
    """Empty for a target of make without tests."""
    if not outcome.passed:
        return ""
    return f", {outcome.passed} passed, {outcome.failed} failed, {outcome.skipped} skipped"


def closing_line(outcomes: Sequence[Outcome]) -> str:
    """One line about all tests of all lanes. A lane that failed without a failed test (make, a crash) counts as one."""
    failed = sum(max(each.failed, 0 if each.is_ok else 1) for each in outcomes)
    passed, skipped = sum(each.passed for each in outcomes), sum(each.skipped for each in outcomes)
    cpu_seconds = sum(each.cpu_seconds for each in outcomes)
    return f"{passed} passed, {failed} failed, {skipped} skipped, CPU {cpu_seconds:.0f} s"
