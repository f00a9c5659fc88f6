"""`nodedevice-agent discover` on made-up hosts: what it finds, and that the settings that it prints offer exactly that."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result
from nodedevice_agent.cli import discover as command
from nodedevice_agent.cli.discover import discover
from nodedevice_agent.plugins.generic.discover import offered
from nodedevice_agent.plugins.nvml import discover as nvml
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_kube.decoding import decode_documents

from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.discovery.hosts import GPU, HOSTS, board_serial, network_adapter, pci, stick

NO_DRIVER = "libnvidia-ml.so.1 is not found"


@pytest.fixture(autouse=True)
def _no_nvidia(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process that asks a driver; tests/nvml has that."""

    async def none(*_: object) -> tuple[tuple[Gpu, ...], str]:
        return (), NO_DRIVER

    monkeypatch.setattr(nvml, "nvidia_gpus", none)


@pytest.fixture
def host(tmp_path: Path) -> FakeSysfs:
    return FakeSysfs(tmp_path / "host")


def run(host: FakeSysfs, *arguments: str, plugins: dict[str, Any] | None = None) -> Result:
    folder = host.root.parent
    settings = {"stateDir": str(folder), "plugins": {"hostRoot": str(host.root), **(plugins or {})}}
    (folder / "agent.yaml").write_text(yaml.safe_dump(settings))
    result = CliRunner().invoke(discover, ["--config", str(folder / "agent.yaml"), *arguments])
    assert result.exception is None, result.exc_info
    return result


def found(host: FakeSysfs, plugins: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    candidates: list[dict[str, Any]] = json.loads(run(host, "-o", "json", plugins=plugins).output)["candidates"]
    return candidates


@pytest.mark.parametrize("name", HOSTS)
def test_each_candidate_is_offered_by_its_own_settings_alone(host: FakeSysfs, name: str) -> None:
    """As the agent itself reads them."""
    HOSTS[name](host)
    for each in found(host):
        pasted = each["plugins"]
        [resource] = pasted["generic"]
        by_file = offered(msgspec.convert(pasted, PluginSettings).generic, str(host.root)).offered_as
        extra = {"/dev/kfd"} if "/dev/kfd" in json.dumps(pasted) else set()
        assert set(by_file) - extra == {file["path"] for file in each["files"]}
        assert {*by_file.values()} == {(resource["resourceName"],)}


@pytest.mark.parametrize("name", HOSTS)
def test_all_of_them_together_are_settings_that_mark_them_as_offered(host: FakeSysfs, name: str) -> None:
    """As they are printed for people: pasted whole, no key is there twice."""
    HOSTS[name](host)
    printed = run(host).output.partition("are yours to choose.\n\n")[2].partition("\n\n")[0]
    [pasted] = decode_documents(printed, is_strict=True)
    together = [resource for each in found(host) for resource in each["plugins"]["generic"]]
    assert pasted == {"generic": together}
    again = found(host, {"generic": together})
    assert [each["offeredAs"] for each in again] == [[resource["resourceName"]] for resource in together]
    assert "resourceName" not in run(host, plugins={"generic": together}).output


def test_hubs_and_disks_of_the_machine_are_none(host: FakeSysfs) -> None:
    host.node(host.usb("1-1", "05e3", "0608"), "usb", "189:5", name="bus/usb/001/002")
    stick(host)
    place = "/devices/pci0000:00/0000:01:00.0"
    host.node(f"{place}/nvme/nvme0", "nvme", "240:1", parent=place)
    host.node(f"{place}/nvme/nvme0/nvme0n1", "block", "259:0", parent=f"{place}/nvme/nvme0")
    assert [each["identity"]["port"] for each in found(host)] == ["1-1.2"]


def test_what_the_node_itself_uses_says_so(host: FakeSysfs) -> None:
    network_adapter(host)
    board_serial(host)
    (host.sys("/class/tty/console")).mkdir(parents=True)
    (host.sys("/class/tty/console") / "active").write_text("tty0 ttyAMA0\n")
    host.node("/devices/platform/wdt/watchdog/watchdog0", "watchdog", "248:0", parent="/devices/platform/wdt")
    (host.sys("/devices/platform/wdt") / "of_node").mkdir()
    serial, usb = found(host)
    assert serial["notes"] == ["it is a console of the node: what the kernel and its log-in write goes there"]
    assert usb["notes"] == ["the kernel's r8152 serves it: a program with raw access takes it from the node"]


def test_gpus_of_nvidia_without_its_library(host: FakeSysfs) -> None:
    pci(host, GPU, "10de", "2331", "nvidia", "030200")
    [one] = found(host)
    assert one["plugins"] == {"nvml": {}}
    assert (one["kind"], one["name"]) == ("gpu", "10de:2331")
    assert one["identity"] == {"pci": "10de:2331", "address": "0000:00:02.0", "driver": "nvidia"}
    assert one["notes"] == ["NVIDIA's driver does not report it here"]
    assert "nvml: {}" in run(host).output
    assert NO_DRIVER in json.loads(run(host, "-o", "json").output)["notes"]


def test_gpus_that_the_driver_reports(host: FakeSysfs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are on no bus that is seen here; with the plugin on they are offered."""
    pci(host, GPU, "10de", "2331", "nvidia", "030200")
    gpus = (Gpu("GPU-a", "NVIDIA H100", pci_bus_id="0000:00:02.0"), Gpu("GPU-b", "NVIDIA A2"))
    on_bus = {"pci": "10de:2331", "address": "0000:00:02.0", "driver": "nvidia"}

    async def two(*_: object) -> tuple[tuple[Gpu, ...], str]:
        return gpus, ""

    monkeypatch.setattr(nvml, "nvidia_gpus", two)
    assert [(each["name"], each["identity"], each.get("notes"), each["plugins"]) for each in found(host)] == [
        ("NVIDIA A2", {"uuid": "GPU-b"}, None, {"nvml": {}}),
        ("NVIDIA H100", {**on_bus, "uuid": "GPU-a"}, None, {"nvml": {}}),
    ]
    assert [each["offeredAs"] for each in found(host, {"nvml": {}})] == [["nvidia.com/gpu"]] * 2


def test_what_a_process_needs_to_open_it(host: FakeSysfs) -> None:
    """Each made-up device file is /dev/null, so its mode is changed in what was read."""
    from nodedevice_agent.plugins.discovery.candidates import Facts, candidates
    from nodedevice_agent.plugins.discovery.survey import hardware

    stick(host)
    read = hardware(str(host.root))

    def with_mode(mode: int, group: int) -> tuple[list[int], bool]:
        """Each of its files is shown with them."""
        files = {path: msgspec.structs.replace(file, mode=mode, group=group) for path, file in read.files.items()}
        [one] = candidates(Facts(read.functions, files))
        assert {(file.mode, file.group) for file in one.files} == {(f"{mode % 0o10000:04o}", group)}
        return one.supplemental_groups, one.only_root

    assert with_mode(0o20660, 20) == ([20], False)
    assert with_mode(0o20661, 20) == ([20], False)
    assert with_mode(0o20640, 20) == ([], True)
    assert with_mode(0o20660, 0) == ([], True)
    assert with_mode(0o20600, 20) == ([], True)
    assert with_mode(0o20666, 0) == ([], False)
    assert with_mode(0o20667, 0) == ([], False)


def test_without_a_state_directory_nothing_of_configurations_is_known(host: FakeSysfs) -> None:
    state = host.root.parent / "state"
    arguments = ["--state-dir", str(state)]
    assert f"{state} does not exist: no agent has run here" in run(host, *arguments).output
    state.mkdir()
    assert str(state) not in run(host, *arguments).output


ODD: dict[str, Callable[[Path], object]] = {
    "no sysfs": lambda root: os.rename(root / "sys", root / "gone"),
    "no dev": lambda root: os.rename(root / "dev", root / "gone"),
    "a loop of links": lambda root: (root / "sys/bus/usb/devices/1-9").symlink_to("1-9"),
    "a link out": lambda root: (root / "sys/dev/char/9:9").symlink_to("../../../../../../../etc"),
    "a class that is a folder": lambda root: (root / "sys/bus/pci/devices/x/class").mkdir(parents=True),
    "names that are no UTF-8": lambda root: os.mkdir(os.fsencode(root) + b"/dev/\xff\xfe"),
    "a huge field": lambda root: next(root.glob("sys/devices/*/*/*/*/*/serial")).write_text("x" * 100_000),
    "bytes": lambda root: next(root.glob("sys/devices/*/*/*/*/*/serial")).write_bytes(b"\xff\0\x1b[2J\n\n"),
    "an empty uevent": lambda root: [path.write_text("") for path in root.glob("sys/dev/char/*/uevent")],
    "devname with ..": lambda root: [path.write_text("DEVNAME=../etc") for path in root.glob("sys/dev/char/*/uevent")],
}


@pytest.mark.parametrize("name", ODD)
def test_odd_trees_end_in_a_list(host: FakeSysfs, name: str) -> None:
    stick(host)
    ODD[name](host.root)
    for arguments in ((), ("-o", "json")):
        assert run(host, *arguments).exit_code == 0


def test_a_device_that_hangs_ends_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel keeps a reader of sysfs waiting; whoever asked gets the prompt back."""
    over = threading.Event()
    monkeypatch.setattr(command, "hardware", lambda root: over.wait())
    monkeypatch.setattr(command, "_MOST_SECONDS", 0.0)
    try:
        result = CliRunner().invoke(discover, ["--state-dir", str(tmp_path)])
    finally:
        over.set()
    assert result.exit_code == 1
    assert "a device hangs; the kernel log (dmesg) names it" in result.output


def test_a_device_without_a_file_says_why(host: FakeSysfs) -> None:
    host.usb("1-3", "10c4", "ea60", "x")
    pci(host, GPU, "8086", "4905")
    gpu, usb = found(host)
    for each in (gpu, usb):
        assert "plugins" not in each
        assert each["notes"] == [
            "it has no device file: no driver of the kernel serves it, or /dev of the host is not mounted here"
        ]
