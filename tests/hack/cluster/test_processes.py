"""Processes that end with their starter, and say why when they end by themselves.

A proxy in the environment is not used for 127.0.0.1.
"""

import contextlib
import errno
import os
import select
import signal
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hack.cluster.errors import ComponentError
from hack.cluster.processes.loopback import reach_loopback_directly
from hack.cluster.processes.processes import Process, removed_at_the_end, reserved_ports, running

_PATIENCE_SECONDS = 60.0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts a program under the name `etcd`; whatever the test does, it is gone afterwards."""
    started: list[Process] = []

    def start_one(*command: str) -> Process:
        process = Process("etcd", command, tmp_path / "etcd.log")
        started.append(process)
        process.start()
        return process

    yield start_one
    for process in started:
        process.kill()


def test_one_that_dies_shows_the_end_of_its_log(start: Callable[..., Process]) -> None:
    process = start("/bin/sh", "-c", "seq 100; echo unknown flag; exit 3")
    with pytest.raises(ComponentError) as failed:
        process.wait_ready(lambda: False, timeout_seconds=30)
    assert "etcd ended with status 3" in str(failed.value)
    assert str(failed.value).endswith("100\nunknown flag")
    assert "\n80\n" not in str(failed.value)


def test_one_that_is_not_ready_in_time_is_named(start: Callable[..., Process]) -> None:
    process = start("/bin/sleep", "60")
    with pytest.raises(ComponentError, match=r"(?s)etcd was not ready within 0 s.*nothing logged"):
        process.wait_ready(lambda: False, timeout_seconds=0)
    process.kill()
    assert process.pid is None


def test_a_missing_program_is_named_in_the_log(start: Callable[..., Process], tmp_path: Path) -> None:
    process = start(str(tmp_path / "missing"))
    with pytest.raises(ComponentError, match="No such file"):
        process.wait_ready(lambda: False, timeout_seconds=30)


def test_one_started_by_a_thread_outlives_the_thread(start: Callable[..., Process]) -> None:
    started: list[Process] = []
    thread = threading.Thread(target=lambda: started.append(start("/bin/sh", "-c", "echo ready; exec sleep 60")))
    thread.start()
    thread.join()
    (process,) = started
    process.wait_ready(lambda: "ready" in process.log.read_text(), timeout_seconds=30)
    assert process.pid is not None
    ending = os.pidfd_open(process.pid)
    assert not select.select([ending], [], [], 0)[0]
    process.kill()
    assert select.select([ending], [], [], 30)[0]
    os.close(ending)


def _with_a_process(folder: Path) -> None:
    process = Process("etcd", ["/bin/sleep", "60"], folder / "etcd.log")
    with contextlib.ExitStack() as undo:
        undo.callback(process.kill)
        process.start()


def _with_a_janitor(folder: Path) -> None:
    with removed_at_the_end(folder / "claimed"):
        pass


def _with_a_command(folder: Path) -> None:
    with running(["/bin/sleep", "60"], cwd=folder):
        pass


@pytest.mark.parametrize("with_one", [_with_a_process, _with_a_janitor, _with_a_command])
def test_ctrl_c_while_one_is_made_loses_none(
    with_one: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[psutil.Process] = []
    popen, is_interrupted = subprocess.Popen, threading.Event()

    def interrupt(number: int, frame: object) -> None:
        is_interrupted.set()
        raise KeyboardInterrupt

    def make_and_interrupt(*args: Any, **options: Any) -> "subprocess.Popen[bytes]":
        process = popen(*args, **options)
        made.append(psutil.Process(process.pid))
        # as soon as there is one, and before anybody has it
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert is_interrupted.wait(_PATIENCE_SECONDS)
        return process

    monkeypatch.setattr(subprocess, "Popen", make_and_interrupt)
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            with_one(tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert [each.is_running() for each in made] == [False]


def test_a_folder_goes_with_its_block_and_so_does_the_janitor(tmp_path: Path) -> None:
    folder = tmp_path / "claimed"
    (folder / "deep").mkdir(parents=True)
    before = set(psutil.Process().children())
    with removed_at_the_end(folder):
        (janitor,) = set(psutil.Process().children()) - before
        assert folder.exists()
    assert not folder.exists()
    assert not janitor.is_running()


def test_a_reserved_port_is_for_our_server_only() -> None:
    with reserved_ports(3) as ports, socket.socket() as stranger, socket.socket() as server, socket.socket() as client:
        assert len(set(ports)) == 3
        with pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", ports[0]))
        assert client.connect_ex(("127.0.0.1", ports[0])) == errno.ECONNREFUSED
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Go's do
        server.bind(("127.0.0.1", ports[0]))
        server.listen()
        with socket.create_connection(("127.0.0.1", ports[0])):
            pass


@pytest.mark.parametrize(
    ("name", "value", "then"),
    [
        pytest.param("no_proxy", "", "127.0.0.1,localhost", id="nothing set"),
        pytest.param("no_proxy", ".example.com", ".example.com,127.0.0.1,localhost", id="others stay"),
        pytest.param("NO_PROXY", "localhost", "localhost,127.0.0.1", id="the other spelling"),
        pytest.param("no_proxy", "*", "*", id="no proxy at all"),
    ],
)
def test_loopback_is_reached_directly(monkeypatch: pytest.MonkeyPatch, name: str, value: str, then: str) -> None:
    for spelling in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(spelling, "")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv(name, value)
    reach_loopback_directly()
    reach_loopback_directly()
    assert urllib.request.getproxies()["no"] == then
    assert urllib.request.proxy_bypass("127.0.0.1")
