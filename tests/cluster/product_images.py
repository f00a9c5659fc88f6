"""The product's own images, built from its Dockerfiles without any registry, for a node whose runtime imports them.

The base image that a Dockerfile would pull is put together from Debian's packages: Python, its pip and root certificates.
The builder is buildah, in a store of its own that is removed afterwards: neither a daemon nor anybody's images are touched.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.cluster.errors import BinaryError

PROGRAMS = {"nodedevice-agent": "node-agent/Dockerfile", "nodedevice-operator": "operator/Dockerfile"}

_ROOT = Path(__file__).parents[2]
_BASE = "localhost/nodedevice-base:test"
_BASE_PACKAGES = ("base-files", "ca-certificates", "python3", "python3-pip")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def reference(program: str, tag: str) -> str:
    """The name under which the runtime knows the image afterwards."""
    return f"localhost/{program}:{tag}"


def write_product_archive(path: Path, tag: str, say: Callable[[str], None]) -> None:
    """Build both images and write them into one docker archive for each, named `path`/PROGRAM.tar.

    Raises BinaryError with the end of the builder's output and a remedy.
    """
    _ensure_buildah(say)
    path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nodedevice-images-") as scratch:
        builder = _Builder(Path(scratch))
        say("images: the base, from Debian's packages")
        builder.add_base(base_root(Path(scratch) / "root"))
        for program, dockerfile in PROGRAMS.items():
            say(f"images: {program}")
            builder.build(dockerfile, reference(program, tag))
            builder.write(reference(program, tag), path / f"{program}.tar")
        builder.clear()


def base_root(root: Path) -> Path:
    """A root file system with Python, made of the packages that this machine's apt has. Needs no root; returns `root`."""
    packages = root.with_name("packages")
    packages.mkdir()
    _apt(["download", "-qq", *_closure(_BASE_PACKAGES)], packages)
    # Debian's file system is merged: what packages put into /lib belongs in /usr/lib
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for archive in sorted(packages.glob("*.deb")):
        unpack = f"dpkg-deb --fsys-tarfile {archive} | tar -x --keep-directory-symlink -C {root}"
        _run(["sh", "-c", unpack], "unpacking Debian's packages")
    (root / "tmp").mkdir(mode=0o1777, exist_ok=True)
    bundle = b"".join(file.read_bytes() for file in sorted((root / "usr/share/ca-certificates").rglob("*.crt")))
    (root / "etc/ssl/certs/ca-certificates.crt").write_bytes(bundle)
    return root


def _closure(packages: Sequence[str]) -> list[str]:
    """Those packages with all that they depend on, as name=version, as if nothing was installed."""
    said = _apt(["install", "-s", "-y", "-o", "Dir::State::status=/dev/null", "--no-install-recommends", *packages])
    lines = (line.split() for line in said.splitlines() if line.startswith("Inst "))
    return sorted(f"{words[1]}={words[2].lstrip('(')}" for words in lines)


class _Builder:
    """buildah with a store in a folder, in the ways that need neither a registry nor a daemon."""

    def __init__(self, folder: Path) -> None:
        self._command = ["buildah", "--root", str(folder / "store"), "--runroot", str(folder / "run")]
        self._command += ["--storage-driver", "vfs"]

    def add_base(self, root: Path) -> None:
        container = self._do("from", "scratch").strip()
        self._do("add", "--quiet", container, str(root), "/")
        self._do("config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin", container)
        self._do("commit", "--quiet", container, _BASE)
        self._do("rm", container)

    def build(self, dockerfile: str, name: str) -> None:
        # the machine's own certificates: it may reach the package index through somebody who signs anew
        mounts = [f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro"] if _CERTIFICATES.exists() else []
        pull = ["--pull-never", f"--build-arg=BASE={_BASE}", "--isolation=chroot"]
        self._do("build", "--quiet", *pull, *mounts, "-f", dockerfile, "-t", name, ".")

    def write(self, name: str, archive: Path) -> None:
        archive.unlink(missing_ok=True)  # it would be added to
        self._do("push", "--quiet", name, f"docker-archive:{archive}:{name}")

    def clear(self) -> None:
        self._do("rmi", "--all", "--force")

    def _do(self, *arguments: str) -> str:
        return _run([*self._command, *arguments], f"buildah {arguments[0]}")


def _ensure_buildah(say: Callable[[str], None]) -> None:
    if shutil.which("buildah") is not None:
        return
    if os.geteuid() != 0:
        raise BinaryError("buildah", "is not on this machine, and only root may install it", _remedy())
    say("images: installing Debian's buildah")
    _apt(["install", "-y", "-qq", "--no-install-recommends", "buildah"])


def _apt(arguments: Sequence[str], folder: Path | None = None) -> str:
    # as ourselves: apt's own user may not write into a folder of ours
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
