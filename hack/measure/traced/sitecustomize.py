"""Records which functions of ours a program enters: Python imports this at its start if its folder is in PYTHONPATH.

WALK_TRACE: folder in which each process writes a file of lines `monotonic ns, thread, call|resume, file, line, function`. A
resume is a coroutine or generator that continues after an await or yield. Generated files are left out.
"""

import inspect
import opcode
import os
import re
import sys
import threading
import time
from types import CodeType, FrameType
from typing import Any

_OURS = re.compile(r"/src/(nodedevice_\w+/(?!.*_pb2).*\.py)$")
_YIELD, _RESUME = opcode.opmap["YIELD_VALUE"], opcode.opmap["RESUME"]
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_codes: dict[CodeType, tuple[str, bytes] | None] = {}


def _describe(code: CodeType) -> tuple[str, bytes] | None:
    found = _OURS.search(code.co_filename)
    text = f"{found[1]}\t{code.co_firstlineno}\t{code.co_qualname}" if found else ""
    return (text, code.co_code) if found else None


def _start(folder: str) -> None:
    out = os.open(os.path.join(folder, f"{os.getpid()}.trace"), os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in _codes:
            _codes[code] = _describe(code)
        described = _codes[code]
        if described is None:
            return
        text, instructions = described
        at = frame.f_lasti
        if code.co_flags & _GENERATORS and at < 0:
            # this creates the object, which runs later
            return
        is_resumed = at >= 0 and (
            instructions[at] == _YIELD or (instructions[at] == _RESUME and instructions[at + 1] != 0)
        )
        kind = "resume" if is_resumed else "call"
        os.write(out, f"{time.monotonic_ns()}\t{threading.get_ident()}\t{kind}\t{text}\n".encode())

    threading.setprofile(profile)
    sys.setprofile(profile)


if os.environ.get("WALK_TRACE"):
    _start(os.environ["WALK_TRACE"])
