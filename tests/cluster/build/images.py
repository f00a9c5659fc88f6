"""Container images without a registry: docker archives of one layer, written here and imported by the runtime's own tool.

Three of them share their layer, busybox and a checker of our own: one plays the application, which inspects what its container got,
one the same with the environment of NVIDIA's images; the third is the sandbox's, which only has to stay alive.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# The kubelet pulls none of them: they are imported, and no test sets the pull policy Always.
TEST_IMAGE = "nodedevice.test/busybox:1"
CUDA_IMAGE = "nodedevice.test/cuda:1"
SANDBOX_IMAGE = "nodedevice.test/pause:1"

_APPLETS = (
    *("cat", "cp", "date", "echo", "env", "find", "grep", "id", "kill", "ls", "mkdir", "mknod", "mount", "rm"),
    *("sh", "sleep", "stat", "stty", "sync", "test", "touch", "tr", "true"),
)
_FOLDERS = ("bin", "dev", "etc", "proc", "sys", "tmp", "root")
_FOR_EVER = ("/bin/busybox", "sleep", "2147483647")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Image:
    """An image to build: its reference, default command, and environment without PATH."""

    reference: str
    command: tuple[str, ...]
    env: tuple[str, ...] = ()


IMAGES = (
    Image(TEST_IMAGE, ("/bin/sh",)),
    Image(CUDA_IMAGE, ("/bin/sh",), ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility")),
    Image(SANDBOX_IMAGE, _FOR_EVER),
)


def write_archive(path: Path, busybox: Path, checker: Path) -> None:
    """Write all images into one archive. Both programs are static."""
    _write(path, IMAGES, _layer([busybox, checker], _APPLETS))


def write_program_archive(path: Path, reference: str, program: Path) -> None:
    """Write an image with one static program, which runs in it."""
    _write(path, [Image(reference, (f"/bin/{program.name}",))], _layer([program]))


def _write(path: Path, images: Sequence[Image], layer: bytes) -> None:
    digest = hashlib.sha256(layer).hexdigest()
    with tarfile.open(path, "w") as archive:
        _add(archive, "layer.tar", layer)
        manifest = []
        for image in images:
            config = json.dumps(_config(image, digest)).encode()
            name = f"{hashlib.sha256(config).hexdigest()}.json"
            _add(archive, name, config)
            manifest.append({"Config": name, "RepoTags": [image.reference], "Layers": ["layer.tar"]})
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _config(image: Image, layer_digest: str) -> dict[str, object]:
    return {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Cmd": list(image.command), "Env": ["PATH=/bin", *image.env], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
    }


def _layer(programs: Sequence[Path], applets: Sequence[str] = ()) -> bytes:
    """The file system. Equal inputs give equal bytes: no times, no owners but root."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name in _FOLDERS:
            layer.addfile(_entry(name, tarfile.DIRTYPE, 0o755))
        for program in programs:
            _add(layer, f"bin/{program.name}", program.read_bytes(), 0o755)
        for applet in applets:
            link = _entry(f"bin/{applet}", tarfile.SYMTYPE, 0o777)
            link.linkname = "busybox"
            layer.addfile(link)
        _add(layer, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = _entry(name, tarfile.REGTYPE, mode)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, mode
    return entry
