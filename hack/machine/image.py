"""The disk that every machine begins with: Debian, a kernel's modules, the node's programs, and images in the runtime's
store.

Made once per set of inputs, and kept in the user's cache folder. Images are imported here, by the same containerd: in
the emulated machine that takes a minute.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.machine import guest, kernel, packages
from tests.cluster.build import images
from tests.cluster.build.binaries import find
from tests.cluster.build.cache import cache_folder, lock
from tests.cluster.errors import BinaryError
from tests.cluster.node import containerd
from tests.cluster.node.machine import Machine

_HERE = Path(__file__).parent
_ON_NODE = ("containerd", "containerd-shim-runc-v2", "ctr", "bridge", "host-local", "loopback", "kubelet")
_BINARIES = (*_ON_NODE, "busybox", "checker", "runc")
_DISK_BYTES = 4 * 1024**3
_READY_SECONDS = 60.0
_KEPT = 2

Progress = Callable[[str], None]


@dataclass(frozen=True)
class MachineImage:
    """disk: qcow2, never written: each machine has an overlay over it."""

    kernel: Path
    initrd: Path
    disk: Path


def machine_image(archives: Sequence[Path], progress: Progress, kernel_suite: str = "") -> MachineImage:
    """The image with these archives' container images, made if the cache lacks it. Raises BinaryError with a remedy.

    kernel_suite: of Debian, as trixie, only for the kernel; empty for that of this machine.
    """
    packages.install(progress)
    binaries = find(_BINARIES, progress)
    folder = cache_folder() / "machines"
    apt = packages.Apt(kernel_suite, folder / f"apt-{kernel_suite}")
    package = apt.kernel_package()
    sources = {name: (_HERE / f"{name}.py").read_text() for name in ("guest", "kernel", "image")}
    # of the images that are built here, which have no archive of their own
    sources["images"] = Path(images.__file__).read_text()
    base_key = _digest([sources["kernel"], *guest.PACKAGES, package, apt.version_of(package)])
    # names of image archives contain a digest of their sources, names of program folders their pins
    parts = (path.name for path in (*(binary.parent for binary in binaries.values()), *archives))
    key = _digest([base_key, *(sources[name] for name in ("guest", "image", "images")), *sorted(parts)])
    with lock(cache_folder(), progress):
        base = folder / f"base-{base_key}"
        if not base.exists():
            _complete(base, lambda new: _make_base(new, apt, package, binaries["busybox"], progress))
        made = folder / f"disk-{key}"
        if not made.exists():
            _complete(made, lambda new: _make_disk(new, base, binaries, archives, progress))
        for used in (base, made):
            os.utime(used)
        for prefix in ("base-", "disk-"):
            _forget_unused(folder, prefix)
    return MachineImage(base / "kernel/vmlinux", base / "kernel/initrd.cpio", made / "disk.qcow2")


def _make_base(folder: Path, apt: packages.Apt, package: str, busybox: Path, progress: Progress) -> None:
    """Make kernel/ and root.tar.zst: they contain no source of ours."""
    progress(f"machine: the kernel {package}")
    kernel.make(apt, package, busybox, folder / "kernel")
    progress("machine: Debian, from its packages")
    include = ",".join(guest.PACKAGES)
    leave_out = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale", "zoneinfo", "info")]
    packages.run(
        [
            *("mmdebstrap", "--variant=minbase", "--mode=root", "--quiet", f"--include={include}", *leave_out),
            *("bookworm", str(folder / "root.tar.zst"), str(packages.debian_sources())),
        ]
    )


def _make_disk(
    folder: Path, base: Path, binaries: Mapping[str, Path], archives: Sequence[Path], progress: Progress
) -> None:
    root = folder / "root"
    root.mkdir()
    packages.run(["tar", "-xpf", str(base / "root.tar.zst"), "-C", str(root), "--xattrs"])
    guest.furnish(root)
    version = (base / "kernel/version").read_text()
    shutil.copytree(base / "kernel/modules", root / "lib/modules" / version)
    packages.run(["depmod", "-b", str(root), version])
    for name in _ON_NODE:
        shutil.copy2(binaries[name], root / guest.PROGRAMS.lstrip("/") / name)
    progress("machine: the container images")
    _import_images(root, binaries, archives)
    progress("machine: the disk")
    raw = folder / "disk.img"
    with raw.open("wb") as file:
        file.truncate(_DISK_BYTES)
    packages.run(["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^metadata_csum_seed", "-d", str(root), str(raw)])
    compressed = ("-c", "-o", "compression_type=zstd")
    packages.run(["qemu-img", "convert", "-O", "qcow2", *compressed, str(raw), str(folder / "disk.qcow2")])
    raw.unlink()
    shutil.rmtree(root)


def _import_images(root: Path, binaries: Mapping[str, Path], archives: Sequence[Path]) -> None:
    """Import into the tree's /var/lib/containerd, by a containerd here whose /var/lib is another folder."""
    # short: it holds sockets
    with tempfile.TemporaryDirectory(prefix="ndm-") as scratch:
        machine = Machine(Path(scratch) / "m")
        machine.boot()
        try:
            ours = Path(scratch) / "images.tar"
            images.write_archive(ours, binaries["busybox"], binaries["checker"])
            settings = containerd.RuntimeSettings(
                [binaries["bridge"].parent], Path(scratch), binaries["runc"], nri=False
            )
            (Path(scratch) / "containerd.toml").write_text(containerd.configuration(settings))
            command = [str(binaries["containerd"]), "--config", f"{scratch}/containerd.toml"]
            runtime = machine.process("containerd", command, Path(scratch) / "containerd.log")
            ctr = [str(binaries["ctr"]), "--address", str(machine.outside(containerd.SOCKET)), "--namespace", "k8s.io"]
            runtime.start()
            runtime.wait_ready(lambda: _answers([*ctr, "version"]), _READY_SECONDS)
            for archive in (ours, *archives):
                packages.run([*ctr, "images", "import", "--local", str(archive)])
            runtime.stop(_READY_SECONDS)
            # with the layers' owners, attributes and devices
            packages.run(["cp", "-a", str(machine.outside("/var/lib/containerd")), str(root / "var/lib/containerd")])
        finally:
            machine.power_off()


def _answers(command: Sequence[str]) -> bool:
    try:
        packages.run(command)
    except BinaryError:
        return False
    return True


def _complete(target: Path, make: Callable[[Path], None]) -> None:
    """A folder that appears complete or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    make(unfinished)
    unfinished.replace(target)


def _forget_unused(folder: Path, prefix: str) -> None:
    """Remove all but the images that were used last: each suite keeps its own."""
    found = sorted(folder.glob(f"{prefix}*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in found[_KEPT:]:
        shutil.rmtree(old)


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
