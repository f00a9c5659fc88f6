"""The reader as a program: its options, its orders, and how it ends."""

import os
import sys
import threading
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest
from nodedevice_agent.plugins.nvml.reader import __main__ as program
from nodedevice_agent.plugins.nvml.reader.__main__ import Inbox, Reader
from nodedevice_agent.plugins.nvml.reader.messages import (
    Problem,
    ReaderOptions,
)
from nodedevice_agent.plugins.nvml.reader.problems import DriverProblem


class TestProgram:
    class Exited(BaseException):
        """os._exit of the test."""

    @pytest.fixture
    def status(self, monkeypatch: pytest.MonkeyPatch, followed: "SimpleQueue[tuple[Inbox, bool]]") -> list[int]:
        seen: list[int] = []

        def leave(status: int) -> None:
            seen.append(status)
            raise self.Exited

        def follow(inbox: Inbox) -> None:
            followed.put((inbox, threading.current_thread().daemon))

        monkeypatch.setattr(os, "_exit", leave)
        monkeypatch.setattr(Inbox, "follow", follow)
        return seen

    OPTIONS = ReaderOptions(5, 1, "/host", "/lib")

    @pytest.fixture
    def followed(self) -> "SimpleQueue[tuple[Inbox, bool]]":
        """Whose orders are taken, and whether the thread that does so ends with the process."""
        return SimpleQueue()

    @pytest.mark.parametrize(
        ("error", "status_expected", "output", "errors"),
        [
            pytest.param(
                DriverProblem(Problem("Reason", "words")), 0, b'"message":"words"', b"", id="the driver does not work"
            ),
            pytest.param(BrokenPipeError(), 0, b"", b"", id="the agent is gone"),
            pytest.param(ValueError("a bug"), 1, b"", b"ValueError: a bug", id="a bug"),
            pytest.param(None, 0, b"", b"", id="no more"),
        ],
    )
    def test_how_it_ends(
        self,
        monkeypatch: pytest.MonkeyPatch,
        status: list[int],
        followed: "SimpleQueue[tuple[Inbox, bool]]",
        capfdbinary: pytest.CaptureFixture[bytes],
        error: Exception | None,
        status_expected: int,
        output: bytes,
        errors: bytes,
    ) -> None:
        began: list[Any] = []

        def run_it(reader: Any) -> None:
            began.append((reader._options, reader._driver._library_dir, reader._inbox))
            if error is not None:
                raise error

        monkeypatch.setattr(Reader, "run", run_it)
        monkeypatch.setattr(sys, "argv", ["reader", msgspec.json.encode(self.OPTIONS).decode()])
        with pytest.raises(self.Exited):
            program.main()
        written = capfdbinary.readouterr()
        assert status[0] == status_expected
        assert output in written.out
        assert (output != b"") is written.out.endswith(b"\n")
        assert errors in written.err
        inbox, is_daemon = followed.get(timeout=60)
        assert began == [(self.OPTIONS, "/lib", inbox)]
        assert is_daemon

    def test_options_that_are_none_are_an_error(
        self, monkeypatch: pytest.MonkeyPatch, status: list[int], capfdbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        monkeypatch.setattr(sys, "argv", ["reader", "{}"])
        with pytest.raises(self.Exited):
            program.main()
        assert status == [1]
        assert b"poll_seconds" in capfdbinary.readouterr().err

    def test_orders_come_line_by_line_until_the_agent_is_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        inbox = Inbox()
        seen: list[Any] = []
        invalid = b'nonsense\n[]\n\n{"energy":7}\n'
        chunks = [b'{"energy": {"GPU-a": 1', b'.5}}\n{"energy"', b':{"GPU-a":2.0}}\n', invalid, b'{}\n{"en', b""]
        ended: list[int] = []

        def read(descriptor: int, size: int) -> bytes:
            assert descriptor == 0
            assert 0 < size <= 65536
            seen.append(inbox.orders.energy)
            return chunks.pop(0)

        monkeypatch.setattr(os, "read", read)
        monkeypatch.setattr(os, "_exit", ended.append)
        inbox.follow()
        assert seen == [{}, {}, {"GPU-a": 1.5}, {"GPU-a": 2.0}, {"GPU-a": 2.0}, {}]
        assert ended == [0]
