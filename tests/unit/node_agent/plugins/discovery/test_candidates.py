"""What is made of facts: order, names of resources, and what is offered of whom, with values alone."""

from typing import Any

import pytest
from nodedevice_agent.plugins.contract import Discovered, Reported
from nodedevice_agent.plugins.discovery.candidates import Candidate, Facts, FileFacts, PciDevice, candidates
from nodedevice_agent.plugins.generic.functions import Function, Node, UsbDevice
from nodedevice_agent.plugins.nvml.discover import discovered
from nodedevice_agent.plugins.nvml.gpu import Gpu

PLACE = "/devices/pci0000:00/0000:00:02.0"
ADDRESS = "0000:00:02.0"
NO_FILE = ["it has no device file: no driver of the kernel serves it, or /dev of the host is not mounted here"]


def file(name: str, subsystem: str, kind: str = "c", **known: Any) -> FileFacts:
    """A file that is open to all, unless it is known as another one."""
    node = Node(f"{kind}1:{len(name)}", f"/dev/{name}", f"{PLACE}/{name}", subsystem, PLACE)
    return FileFacts(node, **{"mode": 0o20666, **known})


def facts(*functions: tuple[str, UsbDevice | None, list[FileFacts]], **more: Any) -> Facts:
    """Of devices at these places with these files."""
    made = tuple(Function(place, usb, tuple(each.node for each in files)) for place, usb, files in functions)
    return Facts(made, {each.node.path: each for _, _, files in functions for each in files}, **more)


def usb(port: str, serial: str = "") -> UsbDevice:
    return UsbDevice(f"/usb/{port}", port, "0403", "6001", serial)


def sticks(*labels: str) -> Facts:
    """One serial port for each, in the order of their ports."""
    devices = {f"1-{number}": label for number, label in enumerate(labels, 1)}
    return facts(
        *((f"/usb/{port}", usb(port), [file(f"ttyUSB{port}", "tty")]) for port in devices),
        labels={f"/usb/{port}": label for port, label in devices.items()},
    )


def resources(found: list[Candidate]) -> list[str]:
    return [resource["resourceName"] for each in found for resource in each.plugins["generic"]]


def paths(one: Candidate) -> list[dict[str, Any]]:
    [resource] = one.plugins["generic"]
    [group] = resource["groups"]
    found: list[dict[str, Any]] = group["paths"]
    return found


def driver(gpu: Gpu) -> tuple[Discovered, ...]:
    return (discovered([gpu]),)


def test_by_kind_then_by_name_then_by_identity() -> None:
    """Names that are sorted the other way round."""
    every = facts(
        ("/a", None, [file("0", "spidev")]),
        ("/b", usb("1-2"), [file("b", "hidraw")]),
        ("/b", usb("1-1"), [file("b1", "hidraw")]),
        ("/d", None, [file("d", "video4linux")]),
        ("/e", None, [file("e", "tty")]),
        discovered=driver(Gpu("GPU-c", "c")),
    )
    assert [(each.kind, each.name, each.identity.get("port")) for each in candidates(every)] == [
        ("serial", "e", None),
        ("video", "d", None),
        ("gpu", "c", None),
        ("usb", "0403:6001", "1-1"),
        ("usb", "0403:6001", "1-2"),
        ("other", "0", None),
    ]


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["Stick", "Stick", "Stick"], ["stick", "stick-2", "stick-3"]),
        (["A  b/C"], ["a-b-c"]),
        (["(x)"], ["x"]),
        (["é"], ["serial"]),
        (["a" * 60], ["a" * 40]),
        ([f"{'a' * 39} b"], ["a" * 39]),
    ],
)
def test_a_resource_is_named_as_its_device(labels: list[str], names: list[str]) -> None:
    assert resources(candidates(sticks(*labels))) == [f"example.com/{name}" for name in names]


def test_a_stick_with_a_driver_is_no_raw_access() -> None:
    one = facts(("/usb/1-1", usb("1-1"), [file("ttyUSB0", "tty"), file("bus/usb/001/002", "usb")]))
    driven = facts(("/usb/1-1", usb("1-1"), [file("ttyUSB0", "tty")]), usb_drivers={"/usb/1-1": ("ftdi_sio",)})
    for each in (one, driven):
        [found] = candidates(each)
        assert (found.notes, [file.path for file in found.files]) == ([], ["/dev/ttyUSB0"])
        assert "subsystems" not in found.plugins["generic"][0]["groups"][0]["select"]


def test_all_drivers_of_what_is_taken_from_the_node_are_named() -> None:
    raw = facts(
        ("/usb/1-1", usb("1-1"), [file("bus/usb/001/002", "usb")]), usb_drivers={"/usb/1-1": ("r8152", "cdc_ncm")}
    )
    [found] = candidates(raw)
    assert found.notes == ["the kernel's r8152, cdc_ncm serves it: a program with raw access takes it from the node"]


@pytest.mark.parametrize("serial", ["[", "a[b", "]"])
def test_what_is_no_wildcard_is_named_as_it_is(serial: str) -> None:
    [found] = candidates(facts(("/usb/1-1", usb("1-1", serial), [file("ttyUSB0", "tty")])))
    assert found.plugins["generic"][0]["groups"][0]["select"]["usb"]["serial"] == serial


def test_a_disk_of_the_machine_is_none_whatever_else_it_has() -> None:
    disk = [file("sda", "block", "b"), file("sg0", "scsi_generic")]
    assert candidates(facts((PLACE, None, disk))) == []


def test_what_is_of_the_machine_itself_is_left_out() -> None:
    [found] = candidates(facts((PLACE, None, [file("watchdog0", "watchdog"), file("ttyS0", "tty")])))
    assert [each.path for each in found.files] == ["/dev/ttyS0"]
    assert paths(found) == [{"path": "/dev/ttyS0"}]


def test_a_file_of_software_beside_one_of_hardware_is_a_device_of_that() -> None:
    [found] = candidates(facts((PLACE, None, [file("fuse", "misc"), file("x0", "misc")])))
    assert paths(found) == [{"path": "/dev/fuse"}, {"path": "/dev/x0"}]
    assert "count" not in found.plugins["generic"][0]["groups"][0]


def test_every_resource_that_has_one_of_its_files_is_named() -> None:
    one, other = file("ttyS0", "tty"), file("x0", "misc")
    offered = {one.node.path: ("b/b", "c/c"), other.node.path: ("a/a", "c/c")}
    [found] = candidates(facts((PLACE, None, [one, other]), discovered=(Discovered(offered_as=offered),)))
    assert found.offered_as == ["a/a", "b/b", "c/c"]


def test_each_closed_file_has_its_group() -> None:
    closed = [
        file("a", "tty", mode=0o20660, group=20),
        file("b", "tty", mode=0o20660, group=5),
        file("c", "tty", group=7),
    ]
    [found] = candidates(facts((PLACE, None, closed)))
    assert (found.supplemental_groups, found.only_root) == ([5, 20], False)
    [found] = candidates(facts((PLACE, None, [*closed, file("d", "tty", mode=0o20600, group=9)])))
    assert (found.supplemental_groups, found.only_root) == ([5, 20], True)


class TestGpus:
    @staticmethod
    def amd(*files: FileFacts, **more: Any) -> Candidate:
        pci = (PciDevice(ADDRESS, PLACE, "1002", "740f", "amdgpu"),)
        [found] = candidates(facts((PLACE, None, [*files]), pci_devices=pci, **more))
        return found

    def test_only_what_computes_or_draws_is_offered(self) -> None:
        found = self.amd(file("dri/card0", "drm"), file("fb0", "graphics"), file("accel/accel0", "accel"))
        assert [each.path for each in found.files] == ["/dev/dri/card0", "/dev/fb0", "/dev/accel/accel0"]
        assert paths(found) == [
            {"path": "/dev/dri/card0"},
            {"path": "/dev/accel/accel0"},
            {"path": "/dev/kfd", "optional": True},
        ]

    def test_without_such_a_file_none_is(self) -> None:
        found = self.amd(file("fb0", "graphics"))
        assert (found.plugins, found.notes) == ({}, NO_FILE)

    @pytest.mark.parametrize(
        ("gpu", "name"),
        [(Gpu("GPU-a", "NVIDIA T4", pci_bus_id=ADDRESS), "NVIDIA T4"), (Gpu("GPU-a", pci_bus_id=ADDRESS), "10de:1eb8")],
    )
    def test_is_named_by_its_driver_or_by_its_ids(self, gpu: Gpu, name: str) -> None:
        pci = (PciDevice(ADDRESS, PLACE, "10de", "1eb8", "nvidia"),)
        [found] = candidates(Facts(pci_devices=pci, discovered=driver(gpu)))
        assert (found.name, found.identity["uuid"], found.notes) == (name, "GPU-a", [])

    def test_one_without_a_name_and_on_no_bus_is_its_uuid(self) -> None:
        [found] = candidates(Facts(discovered=driver(Gpu("GPU-a"))))
        assert (found.kind, found.name, found.identity) == ("gpu", "GPU-a", {"uuid": "GPU-a"})

    def test_offered_by_its_uuid_and_by_its_file(self) -> None:
        pci = (PciDevice(ADDRESS, PLACE, "10de", "1eb8", "nvidia"),)
        gpu = Reported("", {"uuid": "GPU-a"}, ADDRESS, ("c/c", "a/a"))
        made = facts(
            (PLACE, None, [file("dri/card0", "drm")]),
            pci_devices=pci,
            discovered=(Discovered((gpu,), settings={"nvml": {}}, offered_as={"/dev/dri/card0": ("b/b",)}),),
        )
        [found] = candidates(made)
        assert found.offered_as == ["a/a", "b/b", "c/c"]

    def test_what_comes_after_one_has_a_resource_of_its_own(self) -> None:
        both = facts(("/a", None, [file("a", "spidev")]), discovered=driver(Gpu("GPU-a")))
        gpu, other = candidates(both)
        assert gpu.plugins == {"nvml": {}}
        assert resources([other]) == ["example.com/a"]
