"""Hosts with devices of every kind, and how each is made."""

from collections.abc import Callable

from tests.fakes.sysfs import FakeSysfs

CSI = "/devices/platform/soc/fe801000.csi"
GPU = "/devices/pci0000:00/0000:00:02.0"


def pci(host: FakeSysfs, place: str, vendor: str, device: str, driver: str = "", its_class: str = "030000") -> None:
    host.pci(place, vendor, device, its_class)
    if driver:
        drive(host, place, driver)


def drive(host: FakeSysfs, place: str, driver: str) -> None:
    host.sys_link(f"{place}/driver", f"/bus/any/drivers/{driver}")


def stick(host: FakeSysfs) -> None:
    sysfs = host.dongle("1-1.2", 0, "A5XK3RJT")
    (host.sys(sysfs) / "manufacturer").write_text("FTDI\n")
    (host.sys(sysfs) / "product").write_text("FT232R USB UART\n")
    drive(host, f"{sysfs}/1-1.2:1.0/ttyUSB0", "ftdi_sio")
    host.link("/dev/serial/by-path/pci-0000:00:14.0-usb-0:1.2:1.0-port0", "/dev/ttyUSB0")
    host.link("/dev/serial/by-id/usb-FTDI_FT232R_A5XK3RJT-if00-port0", "/dev/ttyUSB0")


def usb_camera(host: FakeSysfs) -> None:
    camera = host.usb("1-1", "046d", "0825", "CAFE")
    for number in (0, 1):
        interface = f"{camera}/1-1:1.0"
        host.node(f"{interface}/video4linux/video{number}", "video4linux", f"81:{number}", parent=interface)
    host.node(f"{camera}/1-1:1.2/sound/card1/controlC1", "sound", "116:7", name="snd/controlC1")


def ribbon_camera(host: FakeSysfs) -> None:
    for number in (0, 1):
        host.node(f"{CSI}/video4linux/video{number}", "video4linux", f"81:{number}", parent=CSI)
    (host.sys(CSI) / "of_node").mkdir()
    host.link("/dev/v4l/by-path/platform-fe801000.csi-video-index0", "/dev/video0")


def board_serial(host: FakeSysfs) -> None:
    place = "/devices/platform/soc/fe201000.serial"
    host.node(f"{place}/tty/ttyAMA0", "tty", "204:64", parent=place)
    (host.sys(place) / "of_node").mkdir()


def amd_gpu(host: FakeSysfs) -> None:
    pci(host, GPU, "1002", "740f", "amdgpu")
    host.node(f"{GPU}/drm/card0", "drm", "226:0", name="dri/card0", parent=GPU)
    host.node(f"{GPU}/drm/renderD128", "drm", "226:128", name="dri/renderD128", parent=GPU)
    host.link("/dev/dri/by-path/pci-0000:00:02.0-render", "/dev/dri/renderD128")
    host.node("/devices/virtual/kfd/kfd", "kfd", "510:0")


def usb_disk(host: FakeSysfs) -> None:
    scsi = f"{host.usb('1-1', '0781', '5581', '4C530')}/1-1:1.0/host0/target0:0:0/0:0:0:0"
    host.node(f"{scsi}/block/sda", "block", "8:0", parent=scsi)
    host.node(f"{scsi}/scsi_generic/sg0", "scsi_generic", "21:0", parent=scsi)


def software(host: FakeSysfs) -> None:
    host.node("/devices/virtual/misc/fuse", "misc", "10:229")
    host.node("/devices/virtual/misc/tun", "misc", "10:200", name="net/tun")
    host.node("/devices/virtual/mem/null", "mem", "1:3")
    host.node("/devices/virtual/tty/tty1", "tty", "4:1")


def bus_device(host: FakeSysfs) -> None:
    place = "/devices/platform/soc/spi0.0"
    host.node(f"{place}/spidev/spidev0.0", "spidev", "153:0", parent=place)
    (host.sys(place) / "of_node").mkdir()
    drive(host, place, "spidev")


def accelerator(host: FakeSysfs) -> None:
    pci(host, GPU, "1da3", "1020", "habanalabs", "120000")
    host.node(f"{GPU}/accel/accel0", "accel", "261:0", name="accel/accel0", parent=GPU)


def gpu_of_a_board(host: FakeSysfs) -> None:
    place = "/devices/platform/soc/fec00000.gpu"
    host.node(f"{place}/drm/renderD128", "drm", "226:128", name="dri/renderD128", parent=place)
    (host.sys(place) / "of_node").mkdir()


def modem(host: FakeSysfs) -> None:
    sysfs = host.usb("1-1", "2c7c", "0125", "LTE")
    host.node(sysfs, "usb", "189:3", name="bus/usb/001/004")
    for number in range(4):
        tty = f"{sysfs}/1-1:1.{number}/ttyUSB{number}"
        host.node(f"{tty}/tty/ttyUSB{number}", "tty", f"188:{number}", parent=tty)


def network_adapter(host: FakeSysfs) -> None:
    sysfs = host.usb("1-1", "0bda", "8153", "NIC")
    host.node(sysfs, "usb", "189:2", name="bus/usb/001/003")
    host.sys(f"{sysfs}/1-1:1.0").mkdir(parents=True)
    drive(host, f"{sysfs}/1-1:1.0", "r8152")


HOSTS: dict[str, Callable[[FakeSysfs], object]] = {
    "a stick": stick,
    "two sticks of one serial": lambda host: [host.dongle(f"1-{number + 1}", number, "0001") for number in range(2)],
    "sticks without a serial": lambda host: [host.dongle("1-1", 0), host.dongle("1-2.3", 1)],
    "an odd serial": lambda host: host.dongle("1-1", 0, 'a*b?[c]"\x1b[31m\x07: {x} # é'),
    "raw USB alone": lambda host: host.node(
        host.usb("2-1", "1050", "0407", "key"), "usb", "189:1", name="bus/usb/002/002"
    ),
    "a USB camera": usb_camera,
    "a camera on a ribbon cable": ribbon_camera,
    "a serial port of the board": board_serial,
    "an AMD GPU": amd_gpu,
    "a USB disk": usb_disk,
    "an accelerator": accelerator,
    "a GPU of a board": gpu_of_a_board,
    "a modem with four ports": modem,
    "a network adapter": network_adapter,
    "files without hardware": software,
    "a device on a bus": bus_device,
}
