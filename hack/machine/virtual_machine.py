"""A machine in an emulator: switched on and off, reset, with devices that come and go, and a shell for tests inside.

    machine = VirtualMachine("node-a", folder, image, identity, address, tap); machine.start()
    machine.run("systemctl is-system-running")
    machine.add("usb-serial", id="s1", chardev="c1", bus="xhci.0", serial="AAA")
    machine.reset()

KVM does not work on virtual machines without svm or vmx, so it is emulation, ten to twenty times slower: timeouts are
generous.
"""

import contextlib
import logging
import shutil
import socket
import time
from pathlib import Path
from typing import Any

from qemu.qmp.error import QMPError
from qemu.qmp.legacy import QEMUMonitorProtocol

from hack.machine.guest import DOOR_PORT
from hack.machine.image import MachineImage
from hack.machine.kernel import FIRST_WORDS
from hack.machine.packages import run
from hack.machine.write_log import SECTOR
from tests.cluster.errors import CommandError
from tests.cluster.processes.processes import Process

SECOND_MONITOR = "qmp-2"
MEMORY_MIB, CORES = 1536, 2
USB_PORTS = 8
# it logs each attempt to connect
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)
_START_SECONDS = 60.0
_UNPLUG_SECONDS = 60.0
_DOOR_SECONDS = 180.0
# from the switch, or a reset, to the kernel's first words: five seconds, and more under load
_FIRST_WORDS_SECONDS = 75.0
_POLL_SECONDS = 0.1
# copies by `rep movsb` are emulated byte by byte
_CPU = "max,erms=off"
# highres=off: timers end with the kernel's tick, every 4 ms. An idle node has 290 timer interrupts a second instead of 760, and
# tests took a quarter less time and CPU
_KERNEL_LINE = (
    "console=ttyS0 quiet mitigations=off panic=10 nowatchdog audit=0 random.trust_cpu=on tsc=reliable highres=off "
    "systemd.show_status=0 apparmor=0 selinux=0 net.ifnames=0"
)


class VirtualMachine:
    """folder: of its disk, log and sockets, with a short path. identity: the content of its /opt/node.

    write_log: its writes are logged from each start on, in `writes`, in the form of `write_log`. numa: two NUMA
    nodes, each with a USB controller of its own, xhci0.0 and xhci1.0. iommu: add one, with an unused GPU and two
    unused network cards.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        image: MachineImage,
        identity: Path,
        address: str,
        tap: str,
        *,
        write_log: bool = False,
        numa: bool = False,
        iommu: bool = False,
    ) -> None:
        self.name, self.address, self.folder, self.tap = name, address, folder, tap
        self.console = folder / "console.log"
        self._disk = folder / "disk.qcow2"
        self._numa, self._iommu = numa, iommu
        self.writes = folder / "writes.log" if write_log else None
        self.monitor = folder / "qmp"
        # a monitor accepts one client at a time: this process
        self.second_monitor = folder / SECOND_MONITOR
        self._image, self._identity = image, identity
        folder.mkdir(parents=True, exist_ok=True)
        run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(image.disk), "-F", "qcow2", str(self._disk)])
        self._emulator = Process(f"machine {name}", self._command(), folder / "qemu.log")
        self._monitor: QEMUMonitorProtocol | None = None
        self._boot_began, self._boots_before = 0.0, 0

    @property
    def pid(self) -> int | None:
        return self._emulator.pid

    def start(self) -> None:
        """Switch it on. Raises ComponentError if the emulator does not start."""
        self.monitor.unlink(missing_ok=True)
        if self.writes is not None:
            self.writes.write_bytes(b"")
        self._boot_began, self._boots_before = time.monotonic(), 0
        self._emulator.start()
        self._emulator.wait_ready(self._connects, _START_SECONDS)

    def _connects(self) -> bool:
        """Whether its monitor responds: the socket exists before the monitor listens."""
        monitor = QEMUMonitorProtocol(str(self.monitor))
        try:
            monitor.connect()
        except (QMPError, OSError):
            with contextlib.suppress(QMPError, OSError):
                monitor.close()
            return False
        self._monitor = monitor
        return True

    def kill(self) -> None:
        """Like a power cut: unflushed data of the guest is lost."""
        if self._monitor is not None:
            with contextlib.suppress(QMPError, OSError, RuntimeError):
                self._monitor.close()
            self._monitor = None
        self._emulator.kill()

    def reset(self) -> None:
        """Press the reset button."""
        self._boot_began, self._boots_before = time.monotonic(), self._boots()
        self.command("system_reset")

    def _boots(self) -> int:
        """Number of kernels that have printed anything since it was switched on."""
        return self.console.read_text(errors="replace").count(FIRST_WORDS)

    def console_end(self) -> str:
        return "\n".join(self.console.read_text(errors="replace").splitlines()[-20:])

    def keep_booting(self) -> None:
        """Reset a kernel that stopped before its first words, as one in a hundred does under load.

        Raises ComponentError when the emulator has ended.
        """
        self.verify_alive()
        if time.monotonic() - self._boot_began > _FIRST_WORDS_SECONDS and self._boots() == self._boots_before:
            self.reset()

    def raw_disk(self, target: Path) -> None:
        """A copy of its disk's initial content, as raw bytes."""
        run(["qemu-img", "convert", "-O", "raw", str(self._image.disk), str(target)])

    def use_disk(self, raw: Path) -> None:
        """Replace its disk's content, while it is off."""
        run(["qemu-img", "convert", "-O", "qcow2", str(raw), str(self._disk)])

    def verify_alive(self) -> None:
        """Raises ComponentError when the emulator has ended."""
        self._emulator.verify_alive()

    # -- its devices ------------------------------------------------------------------------------------------------------

    def command(self, name: str, /, **arguments: Any) -> Any:
        """A command of the emulator's monitor. Raises QMPError with its message."""
        assert self._monitor is not None
        return self._monitor.cmd(name, **{key.replace("_", "-"): value for key, value in arguments.items()})

    def add_serial(self, serial: str, port: str, bus: str = "xhci.0") -> None:
        """Plug in a USB serial port. `heard` returns the data that is written to it."""
        self.command("chardev-add", id=f"c{serial}", backend={"type": "ringbuf", "data": {"size": 65536}})
        self.command("device_add", **serial_properties(serial, port, bus))

    def remove_serial(self, serial: str) -> None:
        self.remove(f"s{serial}")
        self.command("chardev-remove", id=f"c{serial}")

    def heard(self, serial: str) -> str:
        """Data that was written to that port since the last call."""
        return str(self.command("ringbuf-read", device=f"c{serial}", size=65536))

    def add(self, driver: str, /, **properties: Any) -> None:
        self.command("device_add", driver=driver, **properties)

    def remove(self, device: str) -> None:
        """Pull a device out; it is gone when this returns. Raises TimeoutError."""
        assert self._monitor is not None
        self._monitor.clear_events()
        self.command("device_del", id=device)
        deadline = time.monotonic() + _UNPLUG_SECONDS
        while time.monotonic() < deadline:
            event: Any = self._monitor.pull_event(wait=_UNPLUG_SECONDS)
            if event and event["event"] == "DEVICE_DELETED" and event["data"].get("device") == device:
                return
        raise TimeoutError(f"{device} was not released within {_UNPLUG_SECONDS:.0f} s")

    # -- inside -----------------------------------------------------------------------------------------------------------

    def run(self, script: str, timeout_seconds: float = _DOOR_SECONDS) -> str:
        """Output of a script in its shell. Raises CommandError with the output if the script fails, OSError without the
        door.
        """
        return run_inside(self.address, script, timeout_seconds)

    def wait_door(self, timeout_seconds: float = _DOOR_SECONDS) -> None:
        """Wait for the shell. Raises TimeoutError with the end of the console, ComponentError."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            self.keep_booting()
            with contextlib.suppress(OSError, CommandError):
                self.run("true", 10.0)
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} does not respond; the end of its console:\n{self.console_end()}")
            time.sleep(_POLL_SECONDS)

    def remove_files(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _command(self) -> list[str]:
        line = f"{_KERNEL_LINE} nd.name={self.name} nd.ip={self.address}"
        # before the devices that use it
        iommu = ("-device", "intel-iommu") if self._iommu else ()
        if self._iommu:
            line += " intel_iommu=on"
        mac = "52:54:00:4d:00:" + f"{int(self.address.rpartition('.')[2]):02x}"
        return [
            *(
                str(shutil.which("qemu-system-x86_64")),
                "-machine",
                "q35,hpet=off",
                "-accel",
                "tcg,thread=multi,tb-size=512",
                "-cpu",
                _CPU,
            ),
            *("-m", str(MEMORY_MIB), "-smp", str(CORES), "-nodefaults", "-display", "none", "-no-user-config"),
            *("-kernel", str(self._image.kernel), "-initrd", str(self._image.initrd), "-append", line),
            *iommu,
            *self._system_drive(),
            *_drive("d1", f"file={self._identity},format=raw,readonly=on"),
            *("-netdev", f"tap,id=n0,ifname={self.tap},script=no,downscript=no"),
            *("-device", f"virtio-net-pci,netdev=n0,mac={mac},romfile=", "-device", "virtio-rng-pci"),
            # more ports than the default: behind a hub devices would have other names
            *("-device", f"qemu-xhci,id=xhci,p2={USB_PORTS},p3={USB_PORTS}", "-device", "pcie-root-port,id=rp1,slot=1"),
            *("-device", "pcie-root-port,id=rp2,slot=2", "-device", "virtio-serial-pci,id=vser"),
            *("-serial", f"file:{self.console}"),
            *(
                word
                for each in (self.monitor, self.second_monitor)
                for word in ("-qmp", f"unix:{each},server=on,wait=off")
            ),
            # last: devices without a bus of their own are put onto the first that they find
            *self._nodes(),
            *self._spare_cards(),
        ]

    def _nodes(self) -> tuple[str, ...]:
        if not self._numa:
            return ()
        memory = f"size={MEMORY_MIB // 2}M"
        return (
            *("-object", f"memory-backend-ram,id=m0,{memory}", "-object", f"memory-backend-ram,id=m1,{memory}"),
            *("-numa", "node,nodeid=0,cpus=0,memdev=m0", "-numa", "node,nodeid=1,cpus=1,memdev=m1"),
            *_controller_of(0),
            *_controller_of(1),
        )

    def _spare_cards(self) -> tuple[str, ...]:
        """Below ports of their own: each is a separate IOMMU group. The GPU cannot be plugged in later."""
        if not self._iommu:
            return ()
        ports = (
            "pcie-root-port,id=spare0,bus=pcie.0,chassis=6,slot=6",
            "pcie-root-port,id=spare1,bus=pcie.0,chassis=7,slot=7",
        )
        cards = ("e1000e,bus=spare0,romfile=", "e1000e,bus=spare1,romfile=", "virtio-gpu-pci,bus=rp2")
        return tuple(word for device in (*ports, *cards) for word in ("-device", device))

    def _system_drive(self) -> tuple[str, ...]:
        if self.writes is None:
            return _drive("d0", f"file={self._disk},format=qcow2,cache=writeback,discard=unmap")
        nodes = (
            f"driver=file,node-name=f0,filename={self._disk}",
            "driver=qcow2,node-name=q0,file=f0",
            f"driver=file,node-name=l0,filename={self.writes}",
            f"driver=blklogwrites,node-name=d0,file=q0,log=l0,log-sector-size={SECTOR}",
        )
        drives = (word for node in nodes for word in ("-blockdev", node))
        return *drives, "-device", "virtio-blk-pci,drive=d0"


def serial_properties(serial: str, port: str, bus: str = "xhci.0") -> dict[str, str]:
    """Properties for the monitor's device_add, for a USB serial port; device_del knows it by its `id`."""
    return {
        "driver": "usb-serial",
        "id": f"s{serial}",
        "chardev": f"c{serial}",
        "serial": serial,
        "bus": bus,
        "port": port,
    }


def run_inside(address: str, script: str, timeout_seconds: float = _DOOR_SECONDS) -> str:
    """Output of a script in the shell of the machine at that address; errors as in `run`."""
    with socket.create_connection((address, DOOR_PORT), timeout=timeout_seconds) as door:
        door.sendall(f"exec 2>&1\n(\n{script}\n)\necho; echo $?\n".encode())
        door.shutdown(socket.SHUT_WR)
        found = b""
        while chunk := door.recv(65536):
            found += chunk
    output, _, status = found.decode(errors="replace").rstrip("\n").rpartition("\n")
    if status.strip() != "0":
        raise CommandError([address, script], int(status or 255), output, "")
    return output.removesuffix("\n")


def _controller_of(node: int) -> tuple[str, ...]:
    """A USB controller of that NUMA node, below a bridge of its own."""
    slot = 8 + node
    return (
        *("-device", f"pxb-pcie,id=pxb{node},bus_nr={64 * (node + 1)},bus=pcie.0,numa_node={node}"),
        *("-device", f"pcie-root-port,id=of{node},bus=pxb{node},chassis={slot},slot={slot}"),
        *("-device", f"qemu-xhci,id=xhci{node},bus=of{node}"),
    )


def _drive(name: str, options: str) -> tuple[str, ...]:
    return "-drive", f"{options},if=none,id={name}", "-device", f"virtio-blk-pci,drive={name}"
