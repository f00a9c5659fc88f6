"""Long turns of the event loop of a program, as lines of a file; imported at the program's start (changed_constants)."""

import asyncio
import gc
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from tests.fakes.turns import CpuSeconds, name_of

_SAMPLE_SECONDS: Final = 0.01
_FRAMES: Final = 5


def report_turns(file: Path, least_ms: float) -> None:
    """From now on, for as long as this process runs: append each turn that takes so much CPU to the file, as a line of JSON.

    Of every event loop. For a whole program; the file is opened for each line, as such turns are few. A line names the coroutine,
    and the places where another thread has seen the turn.
    """
    run, places, collections = asyncio.Handle._run, list[str](), _Collections()
    gc.callbacks.append(collections.happened)
    threading.Thread(target=_sample, args=[places, threading.get_ident()], daemon=True).start()

    def metered(handle: Any) -> None:
        name, meter = name_of(handle), CpuSeconds()
        places.clear()
        collections.cpu_ms = 0.0
        meter.begin()
        try:
            run(handle)
        finally:
            cpu_ms = 1000 * meter.end()
            if cpu_ms >= least_ms:
                with file.open("a", encoding="utf-8") as lines:
                    lines.write(
                        json.dumps(
                            {
                                "cpu_ms": cpu_ms,
                                "name": name,
                                "at": time.time(),
                                "places": places[-3:],
                                "gc_ms": collections.cpu_ms,
                            }
                        )
                        + "\n"
                    )

    asyncio.Handle._run = metered  # type: ignore[assignment, method-assign]


class _Collections:
    """Of garbage, within a turn. cpu_ms: of the thread."""

    def __init__(self) -> None:
        self.cpu_ms = 0.0
        self._meter = CpuSeconds()

    def happened(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._meter.begin()
        else:
            self.cpu_ms += 1000 * self._meter.end()


def _sample(places: list[str], thread: int) -> None:
    while True:
        time.sleep(_SAMPLE_SECONDS)
        frame, stack = sys._current_frames().get(thread), list[str]()
        while frame is not None and len(stack) < _FRAMES:
            stack.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
            frame = frame.f_back
        places.append(" < ".join(stack))
