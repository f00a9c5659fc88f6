"""Compiles pinned programs into the cache, one at a time, and prints the progress.

A program appears in the cache complete or not at all; an interrupted build resumes.
"""

import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.cluster.build.cache import lock
from tests.cluster.build.cores import cores
from tests.cluster.build.go_toolchain import environment, find_go
from tests.cluster.build.pins import Family, family_of
from tests.cluster.build.time_left import Forecast, clock, duration
from tests.cluster.errors import BinaryError
from tests.cluster.processes.processes import running

_REPORT_EVERY_SECONDS = 15.0
_SHOWN_LINES = 15
# Seconds of one core, rounded up: measured on two cores with an empty Go cache, one program after the other, minus the time
# that the current flags saved on the API server. The first program of a family includes the shared packages.
_CORE_SECONDS = {
    "etcd": 135,
    "kube-apiserver": 350,
    "kube-controller-manager": 120,
    "kubectl": 28,
    "kubelet": 47,
    "containerd": 70,
    "helm": 115,
    "helm3": 115,
    "cosign": 200,
}
_CORE_SECONDS_OF_OTHERS = 14

_USE_READY_ONES = "or set KUBEBUILDER_ASSETS to a folder that has the programs"
# Go reports causes only as text. Remedies for the causes that are not in the code.
_REMEDIES = (
    (
        r"no space left on device",
        "free about 6 GB where Go's caches (go env GOCACHE GOMODCACHE) and XDG_CACHE_HOME are",
    ),
    (
        r"dial tcp|no such host|proxyconnect|i/o timeout|connection refused|module lookup disabled",
        f"let Go reach a module proxy (GOPROXY), {_USE_READY_ONES}",
    ),
    (r"checksum mismatch|SECURITY ERROR", "the module proxy serves other code than go.sum pins: use another (GOPROXY)"),
    (r"signal: killed|cannot allocate memory", f"the compiler needs 2 GB of memory, {_USE_READY_ONES}"),
    (
        r"unknown revision|404 Not Found",
        "that version is not published whole as Go modules: ask for another patch release",
    ),
    (r"requires go >=|unknown directive", f"install the Go that tests/cluster/build/go asks for, {_USE_READY_ONES}"),
)


def built_path(binary: str, cache: Path) -> Path:
    """Path of a program of the current pins, whether built or not."""
    return cache / "bin" / family_of(binary).key / binary


def build(binaries: Sequence[str], cache: Path, progress: Callable[[str], None]) -> None:
    """Build the programs that the cache lacks. Raises BinaryError with the end of the compiler's output and a remedy."""
    with lock(cache, progress):
        missing = [binary for binary in binaries if not built_path(binary, cache).exists()]
        if not missing:
            return
        go = find_go(max(family_of(binary).go_version for binary in missing), cache, progress)
        here = cores()
        # if Go has an empty cache
        forecast = Forecast({name: _CORE_SECONDS.get(name, _CORE_SECONDS_OF_OTHERS) / here for name in missing})
        about = f"about {duration(forecast.seconds)} on {here:g} cores, at most"
        progress(f"building {', '.join(missing)} into {cache}, once: {about}")
        for number, binary in enumerate(missing, start=1):
            module = _module_folder(go, family_of(binary), cache, progress)
            _build_one(go, binary, module, built_path(binary, cache), f"[{number}/{len(missing)}]", forecast, progress)


def _module_folder(go: str, family: Family, cache: Path, progress: Callable[[str], None]) -> Path:
    """Folder of the Go module to build in: the pinned one, or one for the requested version."""
    folder = cache / "modules" / family.key
    if family.is_pinned:
        return family.pinned_folder
    if not (folder / "go.sum").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "go.mod").write_text(family.go_mod)
        label = f"{family.name} {family.version}: resolving its dependencies"
        progress(label)
        status, output = run_compiler([go, "mod", "tidy"], folder, environment("mod"), label, progress)
        if status != 0:
            raise _failure(f"{family.name} {family.version}", output)
    return folder


def _build_one(
    go: str, binary: str, module: Path, target: Path, count: str, forecast: Forecast, progress: Callable[[str], None]
) -> None:
    family = family_of(binary)
    target.parent.mkdir(parents=True, exist_ok=True)
    # this process has the lock, so a folder of that name is left from a killed build
    unfinished = target.with_name(f".{binary}.unfinished")
    label = f"{count} {binary} {family.version}"
    progress(label)
    began = time.monotonic()
    command = [go, "build", *family.flags, "-o", str(unfinished), family.packages[binary]]
    described = partial(forecast.describe, binary)
    try:
        status, output = run_compiler(command, module, environment("readonly"), label, progress, described)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    if status != 0:
        unfinished.unlink(missing_ok=True)
        raise _failure(binary, output)
    unfinished.replace(target)
    took = time.monotonic() - began
    forecast.built(binary, took)
    progress(f"{label}: built in {took:.0f} s")


def run_compiler(
    command: list[str],
    folder: Path,
    environ: Mapping[str, str],
    label: str,
    progress: Callable[[str], None],
    described: Callable[[float], str] = clock,
) -> tuple[int, str]:
    """Run a compiler in a folder, with a progress line every few seconds. Returns its exit status and output.

    described: the progress text after so many seconds.
    """
    began = time.monotonic()
    # ends with its builder, and with the lock
    with running(
        command,
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as compiler:
        while True:
            try:
                output, _ = compiler.communicate(timeout=_REPORT_EVERY_SECONDS)
            except subprocess.TimeoutExpired:
                progress(f"{label}: {described(time.monotonic() - began)}")
            else:
                return compiler.returncode, output


def _failure(binary: str, output: str) -> BinaryError:
    remedy = next(
        (remedy for pattern, remedy in _REMEDIES if re.search(pattern, output)),
        f"read what Go says above, {_USE_READY_ONES}",
    )
    shown = "\n".join(output.strip().splitlines()[-_SHOWN_LINES:])
    return BinaryError(binary, f"could not be built:\n{shown}", remedy)
