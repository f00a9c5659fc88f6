"""A guest's kernel, from Debian's package: unpacked here, as an emulated machine is slow at that, with its modules.

The cloud kernels have neither USB nor GPUs, so it is the ordinary one. Packages contain no modules.dep.
"""

import lzma
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hack.machine.packages import Apt, run
from tests.cluster.errors import BinaryError

# before the root file system is mounted, in this order with their dependencies
_EARLY = ("crc32c_generic", "virtio_pci", "virtio_blk", "ext4")
MODULES = (
    *_EARLY,
    *(
        "virtio_net",
        "virtio_rng",
        "virtio_console",
        "virtio-gpu",
        "overlay",
        "bridge",
        "veth",
        "fuse",
        "loop",
        "autofs4",
    ),
    *("xhci_pci", "usb-storage", "sd_mod", "usbserial", "ftdi_sio", "nvme", "tun"),
    *("tcp_diag", "inet_diag", "vfio-pci", "vfio_iommu_type1"),
)
# the first output of each boot
FIRST_WORDS = "the kernel is up"
_INIT = """\
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
echo {first_words} > /dev/console
/bin/busybox mount -t proc proc /proc
for file in {files}; do /bin/busybox insmod /modules/$file; done
until /bin/busybox mount -t ext4 -o rw,noatime /dev/vda /root; do /bin/busybox sleep 0.1; done
/bin/busybox mount --move /dev /root/dev
/bin/busybox umount /proc
exec /bin/busybox switch_root /root /lib/systemd/systemd
"""
_MAGIC = {b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"\x02!L\x18": "lz4"}


@dataclass(frozen=True)
class Kernel:
    """version: as 6.1.0-56-amd64. modules: the folder of that version, with its modules.dep."""

    version: str
    image: Path
    initrd: Path
    modules: Path


def make(apt: Apt, package: str, busybox: Path, folder: Path) -> Kernel:
    """A kernel with its initrd, in a new folder. Raises BinaryError."""
    folder.mkdir()
    tree = apt.fetch(package, folder / "package")
    (compressed,) = (tree / "boot").glob("vmlinuz-*")
    version = compressed.name.removeprefix("vmlinuz-")
    image, initrd = folder / "vmlinux", folder / "initrd.cpio"
    image.write_bytes(unpacked(compressed.read_bytes()))
    packaged = next(path for path in (tree / "lib/modules", tree / "usr/lib/modules") if path.is_dir())
    (tree / "lib/modules").parent.mkdir(exist_ok=True)
    if not (tree / "lib/modules").exists():
        (tree / "lib/modules").symlink_to(packaged)
    run(["depmod", "-b", str(tree), version])
    modules = folder / "modules"
    for file in sorted(set(_closure(tree, version, MODULES))):
        _copy(file, modules / file.relative_to(tree / "lib/modules" / version))
    # built-in modules are requested by name as well
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy2(packaged / version / name, modules / name)
    _write_initrd(initrd, busybox, [_plain(file) for file in dict.fromkeys(_closure(tree, version, _EARLY))], folder)
    (folder / "version").write_text(version)
    shutil.rmtree(folder / "package")
    return Kernel(version, image, initrd, modules)


def unpacked(boot_image: bytes) -> bytes:
    """The kernel in a bzImage; the header has its place. Raises BinaryError for an unknown compression."""
    start, length = struct.unpack_from("<II", boot_image, 0x248)
    start += (boot_image[0x1F1] + 1) * 512
    payload = boot_image[start : start + length]
    kind = next((name for magic, name in _MAGIC.items() if payload.startswith(magic)), "")
    if kind == "xz":
        # its length follows the stream
        return lzma.LZMADecompressor().decompress(payload)
    if not kind:
        raise BinaryError("kernel", f"unknown compression {payload[:6].hex()}", "take another kernel package")
    done = subprocess.run([kind, "-dcq"], input=payload, capture_output=True, check=False)
    if not done.stdout:
        raise BinaryError("kernel", f"{kind} cannot unpack it: {done.stderr.decode()}", f"install {kind}")
    return done.stdout


def _closure(tree: Path, version: str, names: tuple[str, ...]) -> Iterator[Path]:
    """Files of these modules and of their dependencies, in the order of loading; built-in ones have none."""
    for name in names:
        shown = run(["modprobe", "-d", str(tree), "-S", version, "--show-depends", name])
        yield from (Path(line.split()[1]) for line in shown.splitlines() if line.startswith("insmod "))


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.with_name(target.name.removesuffix(".xz")).write_bytes(_plain(source)[1])


def _plain(file: Path) -> tuple[str, bytes]:
    """Name and content of a module, unpacked."""
    content = file.read_bytes()
    return file.name.removesuffix(".xz"), lzma.decompress(content) if file.suffix == ".xz" else content


def _write_initrd(path: Path, busybox: Path, modules: list[tuple[str, bytes]], folder: Path) -> None:
    tree = folder / "initrd"
    for name in ("bin", "dev", "proc", "root", "modules"):
        (tree / name).mkdir(parents=True)
    shutil.copy2(busybox, tree / "bin/busybox")
    for name, content in modules:
        (tree / "modules" / name).write_bytes(content)
    (tree / "init").write_text(_INIT.format(files=" ".join(name for name, _ in modules), first_words=FIRST_WORDS))
    (tree / "init").chmod(0o755)
    run(["sh", "-c", f"find . | cpio -o -H newc --quiet > '{path}'"], tree)
    shutil.rmtree(tree)
