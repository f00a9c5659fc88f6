"""The cases of one program: in each a call fails, the program serves on, says it, and everything works afterwards.

Nothing is measured: what a round waits for decides. Of the clock is only how long a call fails.
"""

import asyncio
import fnmatch
import json
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import Final, Protocol

import pytest

from tests.cluster.waiting import wait_until
from tests.examples import seed
from tests.integration.agent_process import until
from tests.integration.product_process import Json, ProductProcess
from tests.robustness.faults.calls import QUIET, uncategorized
from tests.robustness.faults.cases import LASTS_SECONDS, Case, drawn, matrix
from tests.robustness.faults.strace import Strace, Tracing

SHARE: Final = float(os.environ.get("FAULTS_SHARE", "0.1"))
SEED: Final = seed("FAULTS_SEED")
ONLY: Final = os.environ.get("FAULTS_ONLY", "*")
PAGES: Final = ("/healthz", "/readyz", "/metrics")

# Constants of the programs: failures of one case are news in the next, and no pause of one is left over there.
CONSTANTS: Final = {
    "nodedevice_common.tasks.WELL_AFTER_SECONDS": 1.0,
    "nodedevice_common.tasks._CURRENT_SECONDS": 1.0,
}

# a call that the program makes in each round, as the first pass has seen, is made within these
_ROUNDS: Final = 5
# of descriptors, which a connection that is just being replaced has
_ROOM: Final = 8


class Scene(Protocol):
    """A program, and everything around it."""

    @property
    def program(self) -> ProductProcess: ...

    async def round(self) -> None:
        """Everything changes, and the program follows. Raises AssertionError or TimeoutError where it does not."""


@asynccontextmanager
async def entered(scene: AbstractContextManager[Scene]) -> AsyncIterator[Scene]:
    """For survives(), of a scene that is no asynchronous context."""
    with scene as found:
        yield found


async def survives(
    open_scene: Callable[[], AbstractAsyncContextManager[Scene]],
    strace: Strace,
    subtests: pytest.Subtests,
) -> None:
    """Try the cases that are drawn, one after the other; after one that it did not survive the program is a new one."""
    cases: deque[Case] | None = None
    while cases is None or cases:
        async with open_scene() as scene:
            await scene.round()
            # its files have other names in each scene
            made = await _made(scene, strace)
            if cases is None:
                cases = deque(_chosen(made))
            await _try(cases, scene, made, strace, subtests)


async def _try(
    cases: deque[Case], scene: Scene, made: Mapping[str, Set[str]], strace: Strace, subtests: pytest.Subtests
) -> None:
    """Until one is not survived. made: of this scene."""
    program = scene.program
    usual, before, is_well = problems(program.lines()), descriptors(program), True
    while cases and is_well:
        case, is_well = cases.popleft(), False
        with subtests.test(str(case)):
            failed, lines = await tried(scene, case, strace, made.get(case.call, ()))
            verify_said(case, failed, lines, usual)
            print(f"{case}: failed {len(failed)} times, {descriptors(program)} descriptors", flush=True)
            is_well = True
    if is_well:
        await until(lambda: descriptors(program) <= before + _ROOM, lambda: "descriptors are given back")


async def _made(scene: Scene, strace: Strace) -> Mapping[str, Set[str]]:
    """Calls that the program makes in a round, and the files of their descriptors."""
    with strace.watching(scene.program.pid) as tracing:
        await scene.round()
    return tracing.made


def _chosen(calls: Iterable[str]) -> list[Case]:
    """Of these calls. Raises AssertionError for one that is in no category."""
    unknown = uncategorized(calls)
    assert not unknown, (
        f"list these in tests/robustness/faults/calls.py, as failing or with the reason why not: {unknown}"
    )
    cases = [case for case in matrix(calls) if fnmatch.fnmatch(str(case), ONLY)]
    chosen = drawn(cases, SHARE, SEED)
    print(f"\nfaults: {len(chosen)} of {len(cases)} cases, FAULTS_SEED={SEED} FAULTS_SHARE={SHARE}")
    return chosen


async def tried(scene: Scene, case: Case, strace: Strace, files: Iterable[str]) -> tuple[list[str], list[Json]]:
    """The calls that failed, and what the program has logged since. files: of its descriptors.

    Raises AssertionError where it did not survive, or never made the call.
    """
    program = scene.program
    pid, logged = program.pid, len(program.lines())
    with strace.failing(pid, case, files) as tracing:
        rounds = asyncio.ensure_future(_rounds(scene, tracing))
        try:
            await until(lambda: bool(tracing.failed) or rounds.done(), lambda: f"{case} fails")
            if case.lasts and tracing.failed:
                await asyncio.sleep(LASTS_SECONDS)
        except BaseException:
            rounds.cancel()
            raise
    await rounds
    # nothing is broken for good
    await scene.round()
    program.verify_running()
    assert program.pid == pid
    return tracing.failed, program.lines()[logged:]


async def _rounds(scene: Scene, tracing: Tracing) -> None:
    for _ in range(_ROUNDS):
        await scene.round()
        if tracing.failed:
            return
    raise AssertionError("the program does not make this call")


def verify_said(case: Case, failed: Iterable[str], lines: Sequence[Json], usual: Set[tuple[str, str]]) -> None:
    """A fault that lasts is in the log, in lines of ours that name it: not as a traceback. usual: what rounds without one log."""
    tracebacks = [line for line in lines if "exception" in line]
    assert not tracebacks, tracebacks
    loud = [call for call in failed if not any(part in call for part in QUIET)]
    if case.lasts and loud and f"{case.call} {case.error}" not in QUIET:
        assert problems(lines) - usual, f"nothing is logged of {loud[:3]}"


def wait_pages(get: Callable[[str], tuple[int, object]]) -> None:
    """Wait until a program shows each of its pages, whatever fails meanwhile."""

    def is_shown(page: str) -> bool:
        with suppress(OSError, json.JSONDecodeError):
            return get(page)[0] == HTTPStatus.OK
        return False

    for page in PAGES:
        wait_until(partial(is_shown, page), f"it shows {page}")


def problems(lines: Iterable[Json]) -> Set[tuple[str, str]]:
    """Events of warnings and errors, and the error."""
    return {(line["event"], line.get("error", "")) for line in lines if line["level"] in ("warning", "error")}


def descriptors(program: ProductProcess) -> int:
    return len(os.listdir(f"/proc/{program.pid}/fd"))
