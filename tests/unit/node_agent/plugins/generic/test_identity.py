"""Which device a device file is of: by its subsystem, its place in sysfs and its USB device, from fake sysfs trees on disk."""

import pytest
from nodedevice_agent.identity_index import Index
from nodedevice_agent.plugins.generic.files import found_file
from nodedevice_agent.plugins.generic.found import FoundFile
from nodedevice_agent.plugins.generic.inventory import Inventory
from nodedevice_agent.plugins.generic.sysfs import Sysfs
from nodedevice_agent.plugins.shared_files import NVIDIA_CONTROL_FILES

from tests.fakes.sysfs import HUB, FakeSysfs

PCI = "/devices/pci0000:00/0000:01:00.0"
USB = "/devices/pci0000:00/0000:00:14.0/usb1/1-1"
SCSI = f"{PCI}/ata1/host0/target0:0:0/0:0:0:0"
HID = f"{USB}/1-1:1.1/0003:046D:C52B.0003"
NVME = f"{PCI}/nvme/nvme0"
CARD = f"{PCI}/sound/card0"
RC = f"{PCI}/rc/rc0"
MMC = "/devices/platform/mmc_host/mmc0/mmc0:0001"

Where = tuple[str, str, str]


def at(parent: str, below: str) -> Where:
    """A device file of this device. below: its subsystem and its name."""
    return below.partition("/")[0], f"{parent}/{below}", parent


def alone(place: str) -> Where:
    """Without a link `device`, in the folder of its subsystem."""
    return place.split("/")[-2], place, ""


# subsystem, place below, and where its link `device` leads; a node's name is the last part of its place
DISK, SG, BSG, TAPE = (at(SCSI, each) for each in ("block/sda", "scsi_generic/sg0", "bsg/0:0:0:0", "scsi_tape/st0"))
PARTITION = ("block", f"{SCSI}/block/sda/sda1", "")
HIDRAW = at(HID, "hidraw/hidraw0")
EVENT = ("input", f"{HID}/input/input5/event5", f"{HID}/input/input5")
JOYSTICK = ("input", f"{HID}/input/input5/js0", f"{HID}/input/input5")
VIDEO = at(f"{USB}/1-1:1.0", "video4linux/video0")
NS1 = ("block", f"{NVME}/nvme0n1", NVME)
NS2 = ("block", f"{NVME}/nvme0n2", NVME)
GENERIC1 = ("nvme-generic", f"{NVME}/ng0n1", NVME)
EMMC = at(MMC, "block/mmcblk0")
RPMB = ("mmc_rpmb", f"{MMC}/mmcblk0rpmb", "")
GROUP7 = alone("/devices/virtual/vfio/7")
VFIO = at(PCI, "vfio-dev/vfio0")
MTD = alone("/devices/platform/spi/mtd/mtd0")
CARD0, RENDER = at(PCI, "drm/card0"), at(PCI, "drm/renderD128")
MAD1 = at(PCI, "infiniband_mad/umad1")

ONE: dict[str, tuple[Where, Where]] = {
    "disk and partition": (DISK, PARTITION),
    "disk and sg": (DISK, SG),
    "partition and sg": (PARTITION, SG),
    "disk and bsg": (DISK, BSG),
    "tape and sg": (TAPE, SG),
    "nvme drive and namespace": (("nvme", NVME, PCI), NS1),
    "nvme namespace and its generic file": (NS1, GENERIC1),
    "nvme partition and the generic file": (("block", f"{NVME}/nvme0n1/nvme0n1p1", ""), GENERIC1),
    "mmc and boot partition": (EMMC, ("block", f"{MMC}/block/mmcblk0/mmcblk0boot0", "")),
    "mmc and rpmb": (EMMC, RPMB),
    "mtd and mtdblock": (MTD, ("block", "/devices/platform/spi/mtd/mtd0/mtdblock0", "")),
    "mtd and its read-only file": (MTD, alone("/devices/platform/spi/mtd/mtd0ro")),
    "card and render node": (CARD0, RENDER),
    "card and framebuffer": (CARD0, at(PCI, "graphics/fb0")),
    "render node and DisplayPort channel": (RENDER, ("drm_dp_aux_dev", f"{PCI}/drm/card0/card0-DP-1/drm_dp_aux0", "")),
    "hidraw and event": (HIDRAW, EVENT),
    "event and joystick": (EVENT, JOYSTICK),
    "hiddev and hidraw": (at(f"{USB}/1-1:1.1", "usbmisc/hiddev0"), HIDRAW),
    "a receiver and the mouse behind it": (HIDRAW, at(f"{HID}/0003:046D:4055.0006", "hidraw/hidraw1")),
    "raw usb and tty": (("usb", USB, ""), at(f"{USB}/1-1:1.0/ttyUSB0", "tty/ttyUSB0")),
    "a modem's old and new control file": (
        at(f"{USB}/1-1:1.4", "usbmisc/cdc-wdm0"),
        ("wwan", f"{USB}/1-1:1.4/wwan/wwan0/wwan0qmi0", f"{USB}/1-1:1.4/wwan/wwan0"),
    ),
    "infrared receiver and its input": (("lirc", f"{RC}/lirc0", RC), ("input", f"{RC}/input9/event9", f"{RC}/input9")),
    "media and video": (("media", f"{USB}/1-1:1.0/media0", ""), VIDEO),
    "pcm and its older name": (("sound", f"{CARD}/pcmC0D0p", CARD), ("sound", f"{CARD}/dsp", CARD)),
    "watchdog and its older name": (
        alone("/devices/platform/iTCO_wdt/watchdog/watchdog0"),
        alone("/devices/platform/iTCO_wdt/misc/watchdog"),
    ),
    "console and its screen": (alone("/devices/virtual/tty/tty12"), alone("/devices/virtual/vc/vcsa12")),
    "the current console and its screen": (alone("/devices/virtual/tty/tty0"), alone("/devices/virtual/vc/vcs")),
    "tpm and its resource manager": (
        alone("/devices/LNXSYSTM:00/MSFT0101:00/tpm/tpm0"),
        alone("/devices/LNXSYSTM:00/MSFT0101:00/tpmrm/tpmrm0"),
    ),
    "port and printer": (alone("/devices/pnp0/00:05/ppdev/parport0"), alone("/devices/pnp0/00:05/printer/lp0")),
    "verbs and mad": (at(PCI, "infiniband_verbs/uverbs0"), MAD1),
    "vfio group and device": (GROUP7, VFIO),
    "vfio group without iommu": (alone("/devices/virtual/vfio/noiommu-7"), VFIO),
}

TWO: dict[str, tuple[Where, Where]] = {
    "partitions": (PARTITION, ("block", f"{SCSI}/block/sda/sda2", "")),
    "disks of one controller": (DISK, at(f"{PCI}/ata1/host0/target0:0:1/0:0:1:0", "block/sdb")),
    "a file of the controller, and a disk": (at(f"{PCI}/ata1/host0", "bsg/sas_host0"), DISK),
    "nvme namespaces": (NS1, NS2),
    "nvme namespace and the other's generic file": (NS2, GENERIC1),
    "mmc partition and rpmb": (("block", f"{MMC}/block/mmcblk0/mmcblk0p1", ""), RPMB),
    "video nodes": (VIDEO, at(f"{USB}/1-1:1.0", "video4linux/video1")),
    "ports of an adapter": (at(f"{USB}/1-1:1.0/ttyUSB0", "tty/ttyUSB0"), at(f"{USB}/1-1:1.0/ttyUSB1", "tty/ttyUSB1")),
    "inputs of one hid device": (EVENT, ("input", f"{HID}/input/input6/event6", f"{HID}/input/input6")),
    "all mice, and one": (alone("/devices/virtual/input/mice"), ("input", "/devices/virtual/input/input3/event3", "")),
    "camera and microphone": (VIDEO, ("sound", f"{USB}/1-1:1.2/sound/card1/controlC1", f"{USB}/1-1:1.2/sound/card1")),
    "GPUs": (CARD0, alone("/devices/pci0000:00/0000:02:00.0/drm/card1")),
    "GPU and what else its card has": (CARD0, ("i2c-dev", f"{PCI}/i2c-3/i2c-dev/i2c-3", PCI)),
    "bus and chip": (alone("/devices/platform/i2c-1/i2c-dev/i2c-1"), alone("/devices/platform/i2c-1/1-0068/rtc/rtc0")),
    "ports of one infiniband adapter": (at(PCI, "infiniband_mad/umad0"), MAD1),
    "vfio devices without a group": (
        at("/devices/pci0000:00/0000:02:00.0", "vfio-dev/vfio1"),
        at("/devices/pci0000:00/0000:03:00.0", "vfio-dev/vfio2"),
    ),
    "vfio groups": (GROUP7, alone("/devices/virtual/vfio/8")),
    "an input that a program made, and the file that makes them": (
        alone("/devices/virtual/misc/uhid"),
        alone("/devices/virtual/misc/uhid/0005:046D:B35B.0001/hidraw/hidraw3"),
    ),
}


def made(host: FakeSysfs, where: Where, minor: int) -> str:
    """Its path in /dev."""
    subsystem, sysfs, parent = where
    name = {"bsg": "bsg/0:0:0:0", "usb": "bus/usb/001/002"}.get(subsystem, "")
    return host.node(sysfs, subsystem, f"240:{minor}", parent=parent, name=name)


def inventory(host: FakeSysfs, *, is_unique: bool = True) -> Inventory:
    sysfs = Sysfs(str(host.root))
    return Inventory(sysfs.nodes(), sysfs.usb_devices(), lambda _: is_unique, sysfs.names)


def identified(host: FakeSysfs, path: str, *, is_unique: bool = True) -> FoundFile:
    file = found_file(str(host.root), path)
    assert file is not None
    return inventory(host, is_unique=is_unique).identified(file)


def tokens(host: FakeSysfs, path: str) -> set[str]:
    return set(identified(host, path).tokens)


def are_one(host: FakeSysfs, pair: tuple[Where, Where]) -> bool:
    host.usb("1-1", "046d", "c52b", "S")
    host.pci(PCI, group=7)
    paths = [made(host, where, minor) for minor, where in enumerate(pair)]
    first, second = (tokens(host, path) for path in paths)
    found = []
    for one, other in ((first, second), (second, first)):
        known = Index[int]()
        known.add(0, one)
        found.append({*known.related(other)} == {0})
    assert found[0] == found[1], "whichever comes first"
    return found[0]


@pytest.mark.parametrize("pair", ONE.values(), ids=ONE.keys())
def test_two_files_of_one_device(host: FakeSysfs, pair: tuple[Where, Where]) -> None:
    assert are_one(host, pair)


@pytest.mark.parametrize("pair", TWO.values(), ids=TWO.keys())
def test_two_devices(host: FakeSysfs, pair: tuple[Where, Where]) -> None:
    assert not are_one(host, pair)


def test_namespaces_of_an_nvme_subsystem_with_several_controllers(host: FakeSysfs) -> None:
    subsystem = "/devices/virtual/nvme-subsystem/nvme-subsys0"
    host.node(NVME, "nvme", "240:0", parent=PCI)
    sysfs = Sysfs(str(host.root))
    assert [node.also for node in sysfs.nodes()] == [()]
    host.node(f"{subsystem}/nvme0n1", "block", "259:0")
    host.sys_link(f"{subsystem}/nvme0", NVME)
    host.sys_link("/class/nvme-subsystem/nvme-subsys0", subsystem)
    # the controller was there before its subsystem
    assert {node.number: node.also for node in sysfs.nodes()} == {"c240:0": (subsystem,), "b259:0": ()}


def test_a_gpu_of_nvidias_driver_is_its_drm_files(host: FakeSysfs) -> None:
    """Its own file is not in sysfs."""
    for number, name in enumerate(("card1", "renderD128")):
        host.node(f"{PCI}/drm/{name}", "drm", f"226:{number}", parent=PCI, name=f"dri/{name}")
    sysfs = Sysfs(str(host.root))
    assert [node.also for node in sysfs.nodes()] == [(), ()]
    folder = host.root / "proc/driver/nvidia/gpus/0000:01:00.0"
    folder.mkdir(parents=True)
    for text, token in (
        ("Model: \t\t NVIDIA H100\nDevice Minor: \t 3\nGPU Excluded:\t No\n", ("c195:3",)),
        ("Device Minor: \t 0\n", ("c195:0",)),
        ("Device Minor: ?\n", ()),
    ):
        (folder / "information").write_text(text)
        assert [node.also for node in sysfs.nodes()] == [token, token]


def test_what_is_plugged_into_a_hub_is_another_device(host: FakeSysfs) -> None:
    for port, number in (("1-2", "189:1"), ("1-3", "189:2")):
        # one has nothing plugged in
        hub = host.usb(port, "05e3", "0610", "HUB", device_class=HUB if port == "1-3" else "00")
        host.node(hub, "usb", number, name=f"bus/usb/001/00{number[-1]}")
    host.dongle("1-2.3", 0, serial="A")
    assert tokens(host, "/dev/bus/usb/001/001") == {"c189:1", "hub /port/1-2", "hub /usb/05e3:0610:HUB"}
    assert tokens(host, "/dev/bus/usb/001/002") == {"c189:2", "hub /port/1-3", "hub /usb/05e3:0610:HUB"}


def test_tokens_of_a_usb_device(host: FakeSysfs) -> None:
    dongle = host.dongle("1-2.3", 0, serial="A B%")
    interface = f"{dongle}/1-2.3:1.0"
    for number in (10, 9):
        name = f"ttyUSB{number}"
        host.node(f"{interface}/{name}/tty/{name}", "tty", f"188:{number}", parent=f"{interface}/{name}")
    place = f"{interface}/ttyUSB9/tty/ttyUSB9"
    lasting = "1.0/ttyUSB#1/tty/ttyUSB#0"
    by_port, by_serial = f"/port/1-2.3/{lasting}", f"/usb/0403:6001:A%20B%25/{lasting}"
    assert identified(host, "/dev/ttyUSB9").tokens == ("c188:9", place, by_port, by_serial)
    assert "/usb/0403:6001:A%20B%25/1.0/ttyUSB#2/tty/ttyUSB#0" in tokens(host, "/dev/ttyUSB10")
    assert any(token.startswith("/usb/0403:6001:A%20B%25/1.1/") for token in tokens(host, "/dev/hidraw0"))
    shared_serial = f"/usb/0403:6001:A%20B%25@1-2.3/{lasting}"
    assert identified(host, "/dev/ttyUSB9", is_unique=False).tokens == ("c188:9", place, by_port, shared_serial)


def test_a_usb_device_without_a_serial_is_what_is_in_its_port(host: FakeSysfs) -> None:
    host.dongle("1-1", 0)
    assert "/usb/0403:6001:@1-1/1.0/ttyUSB#0/tty/ttyUSB#0" in tokens(host, "/dev/ttyUSB0")


def number_of(host: FakeSysfs, path: str, number: str) -> str:
    return inventory(host).identified(FoundFile(path, kernel_path=path, number=number)).number


def test_a_file_that_sysfs_does_not_know(host: FakeSysfs) -> None:
    (host.root / "dev/odd").symlink_to("/dev/null")
    host.link("/dev/by-name/odd", "/dev/odd")
    (host.root / "dev/plain").touch()
    assert identified(host, "/dev/by-name/odd").tokens == ("path:/dev/odd",)
    assert identified(host, "/dev/plain").tokens == ("path:/dev/plain",)
    assert number_of(host, "/dev/nvidia0", "c195:0") == "c195:0"
    assert number_of(host, "/dev/ram0", "b1:0") == "b1:0", "a disk, and not the kernel's memory"


def test_a_file_has_its_own_number_whatever_sysfs_names(host: FakeSysfs) -> None:
    host.dongle("1-1", 0, serial="A")
    # made by hand, with a wrong number
    assert number_of(host, "/dev/ttyUSB0", "c188:7") == "c188:7"
    assert number_of(host, "/dev/made-by-hand", "c188:0") == "c188:0"


@pytest.mark.parametrize("path", ["/dev/fuse", "/dev/vfio/vfio", "/dev/dma_heap/x", "/dev/null", *NVIDIA_CONTROL_FILES])
def test_files_that_come_with_devices_are_none(host: FakeSysfs, path: str) -> None:
    host.node(f"/devices/virtual/misc{path}", "misc", "10:5", name=path.removeprefix("/dev/"))
    host.link("/dev/mine", path)
    for name in (path, "/dev/mine"):
        file = identified(host, name)
        assert (file.tokens, file.is_shared_file) == ((), True)
