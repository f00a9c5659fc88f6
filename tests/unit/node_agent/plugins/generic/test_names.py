"""IDs of USB devices that are selected: by serial or by port, the same while they are held, and never another one's."""

import logging
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.plugins.generic.functions import UsbDevice
from nodedevice_agent.plugins.generic.serials import Known, Serials

from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.generic.sources import unread_source
from tests.unit.node_agent.plugins.generic.test_select import DONGLES, Selecting

RAW = {"subsystems": ["usb"]}


def raw(host: FakeSysfs, port: str, vendor: str, product: str, serial: str | None = None) -> None:
    """A stick without a driver."""
    host.node(host.usb(port, vendor, product, serial), "usb", "189:1", name="bus/usb/001/002")


def named(selecting: Selecting) -> dict[str, tuple[str, ...]]:
    return {device.listed.id: device.listed.aliases for device in selecting.devices().values()}


@pytest.mark.parametrize("port", ["2-1", "2-*"])
def test_what_is_selected_by_port_is_named_after_it(host: FakeSysfs, port: str) -> None:
    raw(host, "2-1", "1a6e", "089a")
    selecting = Selecting(host, {**RAW, "usb": {"port": port}})
    assert named(selecting) == {"usb-port-2-1": ("1a6e-089a-port-2-1",)}
    host.unplug("2-1")
    # with its firmware
    raw(host, "2-1", "18d1", "9302", "GOOGLE")
    assert named(selecting) == {"usb-port-2-1": ("18d1-9302-port-2-1", "18d1-9302-GOOGLE", "1a6e-089a-port-2-1")}
    host.unplug("2-1")
    raw(host, "2-1", "1a6e", "089a")
    assert named(selecting) == {"usb-port-2-1": ("1a6e-089a-port-2-1", "18d1-9302-port-2-1")}


def test_a_port_is_remembered_for_its_last_modes(host: FakeSysfs) -> None:
    selecting = Selecting(host, {**RAW, "usb": {"port": "2-1"}})
    for product in range(20):
        raw(host, "2-1", "1a6e", f"{product:04}")
        [aliases] = named(selecting).values()
        host.unplug("2-1")
    assert aliases == tuple(f"1a6e-{product:04}-port-2-1" for product in range(19, 11, -1))


@pytest.mark.parametrize(
    ("serial", "usb", "ids"),
    [
        (None, {"vendor": "0403"}, ("0403-6001-port-1-1", "usb-port-1-1")),
        ("S", {"vendor": "0403"}, ("0403-6001-S", "0403-6001-port-1-1", "usb-port-1-1")),
        ("S", {"serial": "S"}, ("0403-6001-S", "0403-6001-port-1-1", "usb-port-1-1")),
        ("S", {"serial": "S", "port": "1-1"}, ("0403-6001-S", "0403-6001-port-1-1", "usb-port-1-1")),
        ("S", {"port": "1-1"}, ("usb-port-1-1", "0403-6001-port-1-1", "0403-6001-S")),
        ("S", {"port": "1-1", "vendor": "0403"}, ("usb-port-1-1", "0403-6001-port-1-1", "0403-6001-S")),
        (None, {"port": "1-1"}, ("usb-port-1-1", "0403-6001-port-1-1")),
    ],
)
def test_ids_of_a_usb_device(host: FakeSysfs, serial: str | None, usb: dict[str, Any], ids: tuple[str, ...]) -> None:
    host.dongle("1-1", 0, serial=serial)
    [(name, aliases)] = named(Selecting(host, {"usb": usb})).items()
    assert (name, *aliases) == ids


def tokens(selecting: Selecting) -> dict[str, set[str]]:
    """Those of serials, by ID."""
    return {
        device.listed.id: {token for token in device.listed.identity if token.startswith("/usb/0403:6001:0001/")}
        for device in selecting.devices().values()
    }


A, B = "0403-6001-port-1-1", "0403-6001-port-1-2"
SERIAL = "0403-6001-0001"


def test_the_first_one_keeps_its_serial_as_an_alias(host: FakeSysfs, caplog: pytest.LogCaptureFixture) -> None:
    selecting = Selecting(host, DONGLES)
    host.dongle("1-1", 0, serial="0001")
    assert named(selecting) == {SERIAL: (A, "usb-port-1-1")}
    assert tokens(selecting)[SERIAL]
    host.dongle("1-2", 1, serial="0001")
    with caplog.at_level(logging.WARNING):
        assert named(selecting) == {A: (SERIAL, "usb-port-1-1"), B: ("usb-port-1-2",)}
        assert tokens(selecting) == {A: set(), B: set()}, "a serial that is no one's own says nothing"
    assert len(caplog.records) == 1
    # the second one is never taken for the first one
    host.unplug("1-1")
    assert named(selecting) == {B: ("usb-port-1-2",)}
    assert tokens(selecting) == {B: set()}
    host.dongle("1-3", 0, serial="0001")
    assert named(selecting) == {B: ("usb-port-1-2",), "0403-6001-port-1-3": ("usb-port-1-3",)}
    host.unplug("1-3")
    host.dongle("1-1", 0, serial="0001")
    assert named(selecting) == {A: (SERIAL, "usb-port-1-1"), B: ("usb-port-1-2",)}


def test_of_two_that_are_seen_at_once_none_has_the_serial(host: FakeSysfs) -> None:
    host.dongle("1-1", 0, serial="0001")
    host.dongle("1-2", 1, serial="0001")
    selecting = Selecting(host, DONGLES)
    assert named(selecting) == {A: ("usb-port-1-1",), B: ("usb-port-1-2",)}
    host.unplug("1-2")
    assert named(selecting) == {A: ("usb-port-1-1",)}


def test_one_that_was_moved_when_a_second_came_may_be_either(host: FakeSysfs) -> None:
    selecting = Selecting(host, DONGLES)
    host.dongle("1-1", 0, serial="0001")
    assert list(named(selecting)) == [SERIAL]
    host.unplug("1-1")
    host.dongle("1-2", 0, serial="0001")
    host.dongle("1-3", 1, serial="0001")
    assert named(selecting) == {B: ("usb-port-1-2",), "0403-6001-port-1-3": ("usb-port-1-3",)}
    host.dongle("1-1", 2, serial="0001")
    assert named(selecting)[A] == ("usb-port-1-1",)


def test_one_that_moves_alone_keeps_its_serial(host: FakeSysfs) -> None:
    selecting = Selecting(host, DONGLES)
    host.dongle("1-1", 0, serial="0001")
    named(selecting)
    host.unplug("1-1")
    host.dongle("1-2", 0, serial="0001")
    assert named(selecting) == {SERIAL: (B, "usb-port-1-2")}
    host.dongle("1-1", 1, serial="0001")
    assert named(selecting) == {B: (SERIAL, "usb-port-1-2"), A: ("usb-port-1-1",)}


class Agent:
    """One resource in an agent that can be restarted."""

    def __init__(self, host: FakeSysfs, state_dir: Path) -> None:
        self._host, self._state_dir = host, state_dir
        self.restart()

    def restart(self) -> None:
        self._source = unread_source(self._host.root, {"select": DONGLES}, state_dir=self._state_dir)

    def named(self) -> dict[str, tuple[str, ...]]:
        self._source.refresh()
        return {device.id: device.aliases for device in self._source.devices.latest}


def test_the_first_one_is_remembered_over_a_restart(host: FakeSysfs, tmp_path: Path) -> None:
    agent = Agent(host, tmp_path / "state")
    host.dongle("1-1", 0, serial="0001")
    assert agent.named() == {SERIAL: (A, "usb-port-1-1")}
    agent.restart()
    # while the agent was away
    host.dongle("1-2", 1, serial="0001")
    both = {A: (SERIAL, "usb-port-1-1"), B: ("usb-port-1-2",)}
    assert agent.named() == both
    agent.restart()
    assert agent.named() == both
    host.unplug("1-1")
    agent.restart()
    assert agent.named() == {B: ("usb-port-1-2",)}


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b"[" * 100_000, b"[" + b" " * 2**20 + b"]", None])
def test_what_was_remembered_cannot_be_read(
    host: FakeSysfs, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    host.dongle("1-1", 0, serial="0001")
    agent = Agent(host, tmp_path / "state")
    agent.named()
    [file] = (tmp_path / "state/usb-serials").iterdir()
    file.unlink()
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    host.dongle("1-2", 1, serial="0001")
    agent.restart()
    assert agent.named() == {A: ("usb-port-1-1",), B: ("usb-port-1-2",)}
    assert "unreadable" in caplog.text
    # it is written again, or says why not: once, and leaves nothing beside it
    agent.named()
    assert caplog.text.count("cannot save") == (content is None)
    assert [*file.parent.iterdir()] == [file]
    if content is None:
        file.rmdir()
        agent.named()
        agent.restart()
        assert agent.named() == {A: ("usb-port-1-1",), B: ("usb-port-1-2",)}
        assert caplog.text.count("unreadable") == 1


def test_only_so_many_serials_are_remembered() -> None:
    serials = Serials()
    first = UsbDevice("/devices/usb1/1-1", "1-1", "0403", "6001", "first")
    for number in range(1100):
        serials.note([first, UsbDevice("/devices/usb1/1-2", "1-2", "0403", "6001", str(number))])
    assert len(serials.known) == 1024
    assert serials.known[first.identity] == Known("1-1")
