"""The product's own images, built from its Dockerfiles without any registry, for a node whose runtime imports them.

The base image that a Dockerfile would pull is put together from Debian's packages: Python, its pip and root
certificates. The builder is buildah, with a temporary store: it touches neither a daemon nor existing images. Images
stay in the user's cache folder, under a name with a digest of their sources.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.build.bytecode import compile_standard_library
from tests.cluster.build.cache import cache_folder, lock
from tests.cluster.errors import BinaryError

REGISTRY = "localhost"
PROGRAMS = {"nodedevice-agent": "node-agent/Dockerfile", "nodedevice-operator": "operator/Dockerfile"}

_ROOT = Path(__file__).parents[3]
_BASE = "localhost/nodedevice-base:test"
# gRPC needs libstdc++; images of Debian and Python have it anyway
_BASE_PACKAGES = ("base-files", "ca-certificates", "libstdc++6", "python3", "python3-pip")
# a line of a Dockerfile that copies from the project, not from an earlier stage
_COPIED = re.compile(r"^COPY (?!--from=)(\S+) \S+$", re.MULTILINE)
# archives of earlier sources, per program: up to 250 MB each
_KEPT = 2
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True)
class ProductImage:
    """An image in an archive. reference: `localhost/PROGRAM:TAG`, its name in the runtime after the import."""

    program: str
    tag: str
    archive: Path

    @property
    def reference(self) -> str:
        return f"{REGISTRY}/{self.program}:{self.tag}"


def why_not_here() -> str:
    """The missing tools for building them, in a few words; empty if complete."""
    missing = [program for program in ("apt-get", "dpkg-deb") if shutil.which(program) is None]
    return f"the images are built of Debian's packages by {missing[0]}: run on Debian or Ubuntu" if missing else ""


def product_images(progress: Callable[[str], None]) -> dict[str, ProductImage]:
    """Both images of the current sources, by program; built if the cache folder lacks them.

    Raises BinaryError with the end of the builder's output and a remedy.
    """
    cache = cache_folder() / "images"
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nodedevice-images-") as scratch, lock(cache_folder(), progress):
        contexts = {program: context(program, Path(scratch) / program) for program in PROGRAMS}
        found = {program: _image(program, context, cache) for program, context in contexts.items()}
        missing = [image for image in found.values() if not image.archive.exists()]
        if missing:
            _build(missing, contexts, Path(scratch), progress)
        for program in PROGRAMS:
            _forget_old(program, cache)
    return found


def context(program: str, folder: Path) -> Path:
    """A copy of a Dockerfile's inputs from the project: sources may be edited while they are built. Returns `folder`."""
    dockerfile = PROGRAMS[program]
    for source in (dockerfile, *_COPIED.findall((_ROOT / dockerfile).read_text())):
        target = folder / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (_ROOT / source).is_dir():
            shutil.copytree(_ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(_ROOT / source, target)
    return folder


def _image(program: str, context: Path, cache: Path) -> ProductImage:
    """The image's archive, whether built or not: the tag depends on the source and on the way to build."""
    tag = digest_of(context, platform.machine(), Path(__file__).read_text())
    return ProductImage(program, tag, cache / f"{program}-{tag}.tar")


def digest_of(context: Path, *ways: str) -> str:
    """Twelve hexadecimal digits that stand for a folder's files and for how an image is made of them."""
    digest = hashlib.sha256("".join(ways).encode())
    for path in sorted(context.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(context)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _build(
    images: Sequence[ProductImage], contexts: Mapping[str, Path], scratch: Path, progress: Callable[[str], None]
) -> None:
    _ensure_buildah(progress)
    builder = _Builder(scratch)
    progress("images: the base, from Debian's packages")
    builder.add_base(base_root(scratch / "root"))
    for image in images:
        progress(f"images: {image.program}")
        builder.build(contexts[image.program], PROGRAMS[image.program], image.reference)
        unfinished = image.archive.with_name(f".{image.program}.unfinished")
        builder.write(image.reference, unfinished)
        unfinished.replace(image.archive)
    builder.clear()


def _forget_old(program: str, cache: Path) -> None:
    archives = sorted(cache.glob(f"{program}-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for archive in archives[_KEPT:]:
        archive.unlink()


def base_root(root: Path) -> Path:
    """A root file system with Python, made of the packages that this machine's apt has. Needs no root; returns `root`."""
    packages = root.with_name("packages")
    packages.mkdir()
    _apt(["download", "-qq", *_closure(_BASE_PACKAGES)], packages)
    # Debian's file system is merged: files of packages in /lib belong in /usr/lib
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for archive in sorted(packages.glob("*.deb")):
        unpack = f"dpkg-deb --fsys-tarfile {archive} | tar -x --keep-directory-symlink -C {root}"
        _run(["sh", "-c", unpack], "unpacking Debian's packages")
    (root / "tmp").mkdir(mode=0o1777, exist_ok=True)
    compile_standard_library(root)
    bundle = b"".join(file.read_bytes() for file in sorted((root / "usr/share/ca-certificates").rglob("*.crt")))
    (root / "etc/ssl/certs/ca-certificates.crt").write_bytes(bundle)
    return root


def _closure(packages: Sequence[str]) -> list[str]:
    """Those packages with all their dependencies, as name=version, as if no package was installed."""
    output = _apt(["install", "-s", "-y", "-o", "Dir::State::status=/dev/null", "--no-install-recommends", *packages])
    lines = (line.split() for line in output.splitlines() if line.startswith("Inst "))
    return sorted(f"{words[1]}={words[2].lstrip('(')}" for words in lines)


class _Builder:
    """buildah with a store in a folder, used without a registry and without a daemon."""

    def __init__(self, folder: Path) -> None:
        self._command = ["buildah", "--root", str(folder / "store"), "--runroot", str(folder / "run")]
        self._command += ["--storage-driver", "vfs"]

    def add_base(self, root: Path) -> None:
        container = self._do("from", "scratch").strip()
        self._do("add", "--quiet", container, str(root), "/")
        self._do("config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin", container)
        self._do("commit", "--quiet", container, _BASE)
        self._do("rm", container)

    def build(self, context: Path, dockerfile: str, name: str) -> None:
        # the machine's own certificates: a proxy before the package index may sign again
        mounts = [f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro"] if _CERTIFICATES.exists() else []
        pull = ["--pull-never", f"--build-arg=BASE={_BASE}", "--isolation=chroot"]
        self._do("build", "--quiet", *pull, *mounts, "-f", str(context / dockerfile), "-t", name, str(context))

    def write(self, name: str, archive: Path) -> None:
        archive.unlink(missing_ok=True)  # buildah would add to an existing archive
        self._do("push", "--quiet", name, f"docker-archive:{archive}:{name}")

    def clear(self) -> None:
        self._do("rmi", "--all", "--force")

    def _do(self, *arguments: str) -> str:
        return _run([*self._command, *arguments], f"buildah {arguments[0]}")


def _ensure_buildah(progress: Callable[[str], None]) -> None:
    if shutil.which("buildah") is not None:
        return
    if os.geteuid() != 0:
        raise BinaryError("buildah", "is not on this machine, and only root may install it", _remedy())
    progress("images: installing Debian's buildah")
    _apt(["install", "-y", "-qq", "--no-install-recommends", "buildah"])


def _apt(arguments: Sequence[str], folder: Path | None = None) -> str:
    # as this user: apt's own user may not write into our folder
    return _run(["apt-get", "-o", "APT::Sandbox::User=", *arguments], f"apt-get {arguments[0]}", folder)


def _run(command: Sequence[str], label: str, folder: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder or _ROOT, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
    except OSError as exc:
        raise BinaryError("images", f"{command[0]}: {exc.strerror}", _remedy()) from exc
    if done.returncode != 0:
        shown = "\n".join(done.stderr.strip().splitlines()[-15:])
        raise BinaryError("images", f"{label} failed:\n{shown}", _remedy())
    return done.stdout


def _remedy() -> str:
    return "run `apt-get update` as root on a Debian that reaches its mirror and a Python package index"
