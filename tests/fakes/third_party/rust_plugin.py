"""A device plugin on another HTTP/2 and gRPC stack (Rust: tonic, hyper, h2), published by somebody else and run as it is.

It is an example program of the crate below. `cargo install --locked` takes it from the registry with the Cargo.lock that
is published inside the crate, and Cargo checks every download against the registry's checksums: so there is nothing here
to compile from, to pin or to keep up to date but one version.

It asks for preferred allocations and for calls before a container starts, says neither when it registers, and registers
again when its device list's stream ends, without checking whether its socket is still there.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.cluster.build.builder import run_compiler
from tests.cluster.build.cache import cache_folder, lock
from tests.cluster.errors import BinaryError
from tests.fakes.third_party.mount_namespace import at_kubelet_path

CRATE = "k8s-device-plugin-lib"
VERSION = "0.2.0"
PROGRAM = "example_plugin"

RESOURCE = "example.com/widget"
DEVICES = ("widget-0", "widget-1")
# environment variable of its answer to Allocate, with the device IDs
DEVICES_VARIABLE = "EXAMPLE_WIDGET_DEVICES"

# The crate names a newer one and uses nothing that needs it; this is the oldest it was compiled with.
_AT_LEAST = (1, 95)
# --debug: half the time of an optimized build, and nobody measures it
_INSTALL = ("install", "--quiet", "--locked", "--no-track", "--debug", "--ignore-rust-version")
_WHICH = ("--version", VERSION, "--example", PROGRAM, CRATE)
_SHOWN_LINES = 15
_NO_NETWORK = r"failed to (download|fetch|query|get)|could not resolve host|network|timed? ?out"


@cache
def cargo() -> str:
    """Path of a Cargo that can build it; empty where there is none."""
    program = shutil.which("cargo")
    if program is None:
        return ""
    done = subprocess.run([program, "--version"], check=False, capture_output=True, text=True)
    found = re.match(r"cargo (\d+)\.(\d+)", done.stdout)
    return program if found and (int(found[1]), int(found[2])) >= _AT_LEAST else ""


def is_built() -> bool:
    """Whether it is in the cache folder."""
    return _built_path().exists()


def program(progress: Callable[[str], None] = lambda _: None) -> Path:
    """Path of the plugin, built once into the cache folder; that takes two minutes.

    progress: called with each step, a line at a time. Raises BinaryError, which says what to do.
    """
    path = _built_path()
    if not path.exists():
        with lock(cache_folder(), progress):
            if not path.exists():
                _build(path, progress)
    return path


def command(plugin_dir: Path) -> list[str]:
    """The command line that runs it against this plugin directory. Its log has every registration."""
    return at_kubelet_path(program(), plugin_dir, {"RUST_LOG": "info", "NO_COLOR": "1"})


def _built_path() -> Path:
    digest = hashlib.sha256("\0".join([*_INSTALL, *_WHICH, platform.machine()]).encode()).hexdigest()[:12]
    return cache_folder() / "bin" / f"{CRATE}-v{VERSION}-{digest}" / PROGRAM


def _build(path: Path, progress: Callable[[str], None]) -> None:
    """Under the lock. A build that was cut short goes on where it ended; the program appears complete or not at all."""
    if not cargo():
        raise BinaryError(PROGRAM, f"there is no Cargo {'.'.join(map(str, _AT_LEAST))} or newer", "install Rust")
    label = f"{PROGRAM} of {CRATE} {VERSION}"
    progress(f"{label}: building it, once: about two minutes on two cores")
    began = time.monotonic()
    target, unfinished = cache_folder() / "cargo-target", path.parent / "unfinished"
    unfinished.mkdir(parents=True, exist_ok=True)
    arguments = [cargo(), *_INSTALL, "--root", str(unfinished), *_WHICH]
    status, output = run_compiler(arguments, unfinished, _environment(target), label, progress)
    if status != 0:
        raise _failure(output)
    (unfinished / "bin" / PROGRAM).replace(path)
    for leftover in (unfinished, target):
        shutil.rmtree(leftover, ignore_errors=True)
    progress(f"{label}: built in {time.monotonic() - began:.0f} s")


def _environment(target: Path) -> dict[str, str]:
    """No surprises: what somebody sets to build their own programs says nothing about this one."""
    foreign = {"CARGO_BUILD_TARGET", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS"}
    inherited = {name: value for name, value in os.environ.items() if name not in foreign}
    return {**inherited, "CARGO_TARGET_DIR": str(target), "CARGO_PROFILE_DEV_DEBUG": "0"}


def _failure(output: str) -> BinaryError:
    shown = "\n".join(output.strip().splitlines()[-_SHOWN_LINES:])
    has_no_network = re.search(_NO_NETWORK, output, re.IGNORECASE)
    remedy = "let Cargo reach a crate registry" if has_no_network else "read what Cargo says above"
    return BinaryError(PROGRAM, f"could not be built:\n{shown}", remedy)
