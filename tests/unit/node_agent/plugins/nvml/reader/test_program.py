"""The reader as a program: its options, its orders, its calls with a deadline, and how it ends."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from nodedevice_agent.plugins.nvml.reader.__main__ import CallHangs, Calls, Inbox
from nodedevice_agent.plugins.nvml.reader.messages import Problem, ReaderOptions

PROGRAM = [sys.executable, "-m", "nodedevice_agent.plugins.nvml.reader"]


def test_a_driver_that_does_not_work_is_its_last_message(tmp_path: Path) -> None:
    options = msgspec.json.encode(ReaderOptions(5, 1, "/host", str(tmp_path))).decode()
    # an agent that is there: its end would be the reader's
    with subprocess.Popen([*PROGRAM, options], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        (line,) = process.stdout.readlines()
        assert process.wait() == 0
    assert msgspec.json.decode(line, type=Problem).reason == "NoDriverLibrary"


def test_an_error_is_printed_and_shows_in_the_status() -> None:
    with subprocess.Popen([*PROGRAM, "{}"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        assert process.wait() == 1
    assert b"poll_seconds" in errors


def test_orders_come_line_by_line_until_the_agent_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    inbox = Inbox()
    seen: list[dict[str, float]] = []
    invalid = b'nonsense\n[]\n\n{"energy":7}\n'
    chunks = [b'{"energy": {"GPU-a": 1', b'.5}}\n{"energy"', b':{"GPU-a":2.0}}\n', invalid, b'{}\n{"en', b""]
    ended: list[int] = []

    def read(descriptor: int, size: int) -> bytes:
        seen.append(dict(inbox.orders.energy))
        return chunks.pop(0)

    monkeypatch.setattr(os, "read", read)
    monkeypatch.setattr(os, "_exit", ended.append)
    inbox.follow()
    assert seen == [{}, {}, {"GPU-a": 1.5}, {"GPU-a": 2.0}, {"GPU-a": 2.0}, {}]
    assert ended == [0]


def test_results_and_errors_of_calls_are_returned() -> None:
    def fail() -> None:
        raise ValueError("no")

    calls = Calls(30)
    assert calls.do(lambda: 7) == 7
    with pytest.raises(ValueError, match="no"):
        calls.do(fail)
    assert calls.do(lambda: 8) == 8


def test_a_hanging_call_is_abandoned() -> None:
    let_go = threading.Event()
    with pytest.raises(CallHangs) as hang:
        Calls(0.05).do(lambda: let_go.wait(60))
    assert not hang.value.call.done()
    assert Calls(30).do(lambda: 1) == 1
    let_go.set()
    assert hang.value.call.result(60) is True
