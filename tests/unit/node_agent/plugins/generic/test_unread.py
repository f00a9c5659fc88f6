"""A question about a file that the system does not answer is no answer: for a while no device is gone because of it."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.plugins.generic import source as generic_source
from nodedevice_agent.plugins.generic.source import GenericSource
from nodedevice_agent.plugins.generic.unread import RETRY_SECONDS

from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.generic.sources import paths, settings_of, source_of

ERRORS = (errno.EIO, errno.EMFILE, errno.EACCES, errno.ENOMEM, errno.ENAMETOOLONG)
# every call with which files are found, or a device is recognized
CALLS = ("listdir", "readlink", "scandir", "stat", "lstat", "open")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(generic_source, "time", clock)
    return clock


@contextmanager
def failing(root: Path, call: str, number: int) -> Iterator[list[str]]:
    """That call fails for each path below the root, and is not made; the paths."""
    asked: list[str] = []
    module: Any = os if call != "open" else __import__("builtins")
    real: Callable[..., Any] = getattr(module, call)

    def refuse(path: Any, *args: Any, **options: Any) -> Any:
        if str(path).startswith(str(root)):
            asked.append(str(path))
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, call, refuse)
        yield asked


def ids(source: GenericSource) -> list[str]:
    return [each.id for each in source.devices.latest]


def by_path(root: Path) -> GenericSource:
    for number in range(2):
        file = root / f"dev/serial/by-id/thing{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        (root / f"dev/tty{number}").symlink_to("/dev/null")
        file.symlink_to(f"../../tty{number}")
    return source_of(root, paths("/dev/serial/by-id/*"))


def by_selection(root: Path) -> GenericSource:
    FakeSysfs(root).dongle("1-1", 0)
    return source_of(root, {"select": {"subsystems": ["tty"]}})


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.__getitem__)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("make", [by_path, by_selection])
def test_no_device_goes_because_a_call_fails(
    tmp_path: Path,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[Path], GenericSource],
    call: str,
    number: int,
) -> None:
    source = make(tmp_path)
    before = list(source.devices.latest)
    assert before
    caplog.clear()
    with failing(tmp_path, call, number):
        for _ in range(3):
            source.refresh()
            clock.now += RETRY_SECONDS
    assert list(source.devices.latest) == before
    for line in (vars(record) for record in caplog.records if record.name.endswith("unread")):
        assert line["error"] == os.strerror(number)
        assert line["path"].startswith(str(tmp_path))
    source.refresh()
    assert list(source.devices.latest) == before


def test_other_settings_take_devices_away_all_the_same(tmp_path: Path, clock: Clock) -> None:
    source = by_path(tmp_path)
    source.reconfigure(settings_of(paths("/dev/serial/by-id/no*")))
    with failing(tmp_path, "listdir", errno.EIO):
        source.refresh()
    assert ids(source) == []
