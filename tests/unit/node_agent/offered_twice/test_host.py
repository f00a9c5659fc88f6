"""What of this host is read: device files, links, and CDI devices; and what nobody reads twice, or waits for."""

import json
import os
import stat
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from nodedevice_agent.offered_twice import host
from nodedevice_agent.offered_twice.files import Node
from nodedevice_agent.offered_twice.host import HostReader, read_host

from tests.fakes.polling import until
from tests.fakes.sysfs import FakeSysfs

NAME = "vendor.example/claim=a"
X1 = {"path": "/dev/x1"}


def specify(root: Path, text: str, name: str = "vendor.example-claim.json", directory: str = "var/run/cdi") -> Path:
    path = root / directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def spec(*nodes: dict[str, Any], everybodys: tuple[dict[str, Any], ...] = (), more: tuple[str, ...] = ()) -> str:
    edits = {"env": ["A=b"]}
    devices = [{"name": name, "containerEdits": edits} for name in ("a", *more)]
    devices[0]["containerEdits"] = {**edits, "deviceNodes": [*nodes]}
    whole = {"cdiVersion": "1.1.0", "kind": "vendor.example/claim", "devices": devices}
    return json.dumps({**whole, "containerEdits": {"deviceNodes": [*everybodys]}})


def of_cdi(root: Path) -> tuple[Node, ...]:
    found, _, _ = read_host((), [NAME], {}, str(root))
    return found.of_cdi([NAME])


def test_a_device_file_has_its_number_and_a_link_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/link").symlink_to("/dev/null")
    (tmp_path / "dev/plain").touch()
    (tmp_path / "dev/directory").mkdir()
    (tmp_path / "dev/around").symlink_to("/dev/around")
    paths = [f"/dev/{name}" for name in ("link", "plain", "directory", "around", "gone")]
    found, _, _ = read_host(paths, (), {}, str(tmp_path))
    assert tuple(replace(node, inode=None) for node in found.named(paths)) == (
        Node("/dev/link", "c1:3", "/dev/null", is_own=True),
        Node(""),
        Node(""),
        Node("/dev/around"),
        Node("/dev/gone"),
    )
    assert not [*Node("").tokens(is_only=True)]


@pytest.mark.parametrize(
    ("place", "uevent", "is_own", "is_copy"),
    [
        pytest.param("pci0000:00/0000:00:02.0/x", "DEVNAME=x\n", True, False, id="hardware"),
        pytest.param("virtual/misc/x", "MAJOR=1\nDEVNAME=x\n", False, False, id="of the kernel"),
        pytest.param("virtual/misc/fuse", "DEVNAME=fuse\n", True, True, id="another name for one of the kernel"),
        pytest.param("virtual/block/loop0", "DEVNAME=loop0\n", True, False, id="one of several"),
        pytest.param("virtual/misc/y", "", True, False, id="the kernel makes no file"),
        pytest.param("virtual/misc/y", None, True, False, id="nothing is said"),
        pytest.param("virtual/misc/x", "OF=\udcff\nDEVNAME=x\n", False, False, id="octets that are no text"),
        pytest.param("virtual/misc/y", f"OF={5000 * 'y'}\nDEVNAME=x\n", True, False, id="longer than the kernel's"),
        pytest.param("", None, True, False, id="not in sysfs"),
    ],
)
def test_what_is_behind_a_file(tmp_path: Path, place: str, uevent: str | None, is_own: bool, is_copy: bool) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/x").symlink_to("/dev/null")
    if place:
        device = tmp_path / "sys/devices" / place
        device.mkdir(parents=True)
        FakeSysfs(tmp_path).sys_link("/dev/char/1:3", f"/devices/{place}")
        if uevent is not None:
            (device / "uevent").write_bytes(os.fsencode(uevent.replace("=x", "=null")))
    found, _, _ = read_host(["/dev/x"], (), {}, str(tmp_path))
    [node] = found.named(["/dev/x"])
    assert replace(node, inode=None) == Node("/dev/x", "c1:3", "/dev/null", is_own, is_copy)


def test_a_file_is_followed_again_when_it_is_another(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    link = tmp_path / "dev/x"
    link.symlink_to("/dev/null")
    first, _, _ = read_host(["/dev/x"], (), {}, str(tmp_path))
    again, _, _ = read_host(["/dev/x"], (), {}, str(tmp_path), first.nodes)
    assert again == first
    link.unlink()
    link.symlink_to("/dev/zero")
    other, _, _ = read_host(["/dev/x"], (), {}, str(tmp_path), again.nodes)
    assert other.nodes["/dev/x"].number == "c1:5"


def test_a_disk_is_a_block_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimpleNamespace(st_mode=stat.S_IFBLK | 0o660, st_rdev=os.makedev(8, 1), st_dev=1, st_ino=2)
    device = tmp_path / "sys/devices/virtual/block/dm"
    device.mkdir(parents=True)
    (device / "uevent").write_text("DEVNAME=dm\n")
    FakeSysfs(tmp_path).sys_link("/dev/block/8:1", "/devices/virtual/block/dm")
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", lambda path: disk)
        found, _, _ = read_host(["/dev/dm"], (), {}, str(tmp_path))
    assert found.named(["/dev/dm"]) == (Node("/dev/dm", "b8:1", "/dev/dm", inode=(1, 2, os.makedev(8, 1))),)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        pytest.param(spec(X1), [Node("/dev/x1")], id="path"),
        pytest.param(spec(X1 | {"hostPath": "/host/dev/y2"}), [Node("/dev/y2")], id="host path"),
        pytest.param(spec(X1 | {"type": "c", "major": 195, "minor": 0}), [Node("/dev/x1", "c195:0")], id="number"),
        pytest.param(spec(X1 | {"type": "p", "major": 1, "minor": 0}), [Node("/dev/x1")], id="a pipe"),
        pytest.param(spec(X1 | {"type": "c"}), [Node("/dev/x1")], id="no number"),
        pytest.param(spec(X1 | {"type": "c", "major": 1}), [Node("/dev/x1", "c1:0")], id="no minor"),
        pytest.param(spec(X1 | {"type": "c", "minor": 1}), [Node("/dev/x1")], id="no major"),
        pytest.param(spec(X1 | {"unknown": 1}), [], id="refused by a runtime"),
        pytest.param(spec({"path": "/srv/x1"}), [], id="outside of /dev"),
        pytest.param(spec(everybodys=(X1,)), [Node("/dev/x1")], id="of the only device"),
        pytest.param(spec(everybodys=(X1,), more=("b",)), [], id="of all devices"),
        pytest.param(spec(X1, X1), [Node("/dev/x1")], id="twice"),
        pytest.param("{", [], id="no JSON"),
        pytest.param("[" * 100_000, [], id="deep"),
        pytest.param(spec({"path": 1}), [], id="of another form"),
        pytest.param(spec(X1).replace('"a"', '"b"'), [], id="another device"),
    ],
)
def test_the_files_of_a_cdi_device(tmp_path: Path, text: str, nodes: list[Node]) -> None:
    specify(tmp_path, text)
    assert [*of_cdi(tmp_path)] == nodes


@pytest.mark.parametrize("name", ["", "=", "a", "vendor.example/claim", "vendor.example/claim=", "/=a", "\0/\n=a"])
def test_a_name_that_is_none_has_no_files(tmp_path: Path, name: str) -> None:
    specify(tmp_path, spec(X1))
    found, _, problems = read_host((), [name], {}, str(tmp_path))
    assert (found.of_cdi([name]), problems) == ((), frozenset())


def test_deep_yaml_links_and_pipes_cost_no_other(tmp_path: Path) -> None:
    specify(tmp_path, "a: " * 5000 + "1", "deep.yaml")
    specify(tmp_path, "[" * 5000, "deeper.yaml")
    directory = tmp_path / "var/run/cdi"
    os.mkfifo(directory / "pipe.json")
    (directory / "around.json").symlink_to("around.json")
    (directory / "nowhere.json").symlink_to("/nowhere")
    (directory / "endless.json").symlink_to("/dev/zero")
    (directory / "directory.json").mkdir()
    specify(tmp_path, spec(X1), "z.json")
    found, _, problems = read_host((), [NAME], {}, str(tmp_path))
    assert found.of_cdi([NAME]) == (Node("/dev/x1"),)
    assert len(problems) == 7
    assert all(len(problem) < 1000 for problem in problems)


async def test_an_unreadable_specification_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    specify(tmp_path, spec(X1))
    specify(tmp_path, "{", "bad.json")
    reader = HostReader(str(tmp_path))
    caplog.set_level("INFO")
    for _ in range(3):
        assert (await reader.read((), [NAME])).of_cdi([NAME]) == (Node("/dev/x1"),)
    assert [record.message for record in caplog.records] == ["CDI specification cannot be read"]
    assert (await reader.read((), ())).of_cdi([NAME]) == ()
    assert not reader.is_reading


async def test_a_disk_that_hangs_costs_one_thread_and_what_was_read_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    specify(tmp_path, spec(X1))
    answers, reader, calls = threading.Event(), HostReader(str(tmp_path)), list[object]()
    before = await reader.read((), [NAME])
    read = host.read_host

    def hanging(*args: Any) -> Any:
        calls.append(args)
        answers.wait()
        return read(*args)

    monkeypatch.setattr(host, "read_host", hanging)
    monkeypatch.setattr(host, "_READ_SECONDS", 0.001)
    try:
        for _ in range(3):
            assert await reader.read(["/dev/x2"], [NAME]) is before
        # the thread may start late
        await until(lambda: bool(calls))
        assert (reader.is_reading, len(calls)) == (True, 1)
        assert len(caplog.records) == 1
    finally:
        answers.set()
    await until(lambda: not reader.is_reading)
    monkeypatch.setattr(host, "_READ_SECONDS", 60.0)
    assert await reader.read(["/dev/x2"], [NAME]) is not before
