"""A fake machine with GPUs: a libnvidia-ml.so.1 of ours, which real pynvml loads through the real loader.

The library is C (hack/fake_nvml/src) and is built once into the cache folder. A description defines the machine; a
control file, followed while it is written, changes it. Both are lines of text, see hack/fake_nvml/src/README.md. This
module does not load the library: its user is another process, started with `environment()`, or tests/fakes/loaded_nvml.py.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.build.cache import cache_folder, lock
from tests.cluster.errors import BinaryError

NAME = "libnvidia-ml.so.1"
SOURCES = Path(__file__).parent / "src"
MACHINES = SOURCES / "machines"

DESCRIPTION_VARIABLE = "NODEDEVICE_FAKE_NVML"
CONTROL_VARIABLE = "NODEDEVICE_FAKE_NVML_CONTROL"
CALLS_VARIABLE = "NODEDEVICE_FAKE_NVML_CALLS"

_FLAGS = (
    *("-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden"),
    # nodelete: its watching thread needs its code
    *("-shared", "-pthread", f"-Wl,-soname,{NAME}", "-Wl,-z,nodelete"),
)


@dataclass(frozen=True)
class Call:
    """One call that the library completed, or that hangs there.

    milliseconds: of the monotonic clock. slot: None if the call is not about a GPU. result: NVML's number; None: it
    hangs.
    """

    milliseconds: int
    function: str
    slot: int | None
    result: int | None


def machines() -> list[str]:
    """The names of the descriptions that are shipped."""
    return sorted(path.stem for path in MACHINES.glob("*.machine"))


def library(extra_flags: Sequence[str] = ()) -> Path:
    """Path of the library; builds it if the cache lacks it. Raises BinaryError with the message of the compiler."""
    path = _built_path(extra_flags)
    if not path.exists():
        with lock(cache_folder(), lambda _: None):
            if not path.exists():
                _build(path, extra_flags)
    return path


def exported_symbols() -> list[str]:
    """The functions of NVML that the library has, as its sources name them."""
    code = "".join(path.read_text() for path in SOURCES.glob("*.c"))
    return sorted(set(re.findall(r"^(?:EXPORT [\w *]+?|(?:TEXT|NUMBER)_CALL\()(nvml\w+)[(,]", code, re.MULTILINE)))


def compiler() -> str | None:
    """Path of a C compiler (CC, gcc or cc), or None."""
    return shutil.which(os.environ.get("CC") or "gcc") or shutil.which("cc")


def put_on_the_bus(host: Path) -> None:
    """Make this root of a host show an NVIDIA GPU on its PCI bus, regardless of the driver."""
    device = host / "sys/bus/pci/devices/0000:1b:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")


def _built_path(extra_flags: Sequence[str]) -> Path:
    digest = hashlib.sha256("\0".join([*_FLAGS, *extra_flags, platform.machine()]).encode())
    for path in sorted((*SOURCES.glob("*.c"), *SOURCES.glob("*.h"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return cache_folder() / "bin" / f"fake-nvml-{digest.hexdigest()[:12]}" / NAME


def _build(path: Path, extra_flags: Sequence[str]) -> None:
    """Call it with the lock; the library appears complete or not at all."""
    program = compiler()
    if program is None:
        raise BinaryError(NAME, "no C compiler found", "install gcc, or set CC")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    sources = [str(source) for source in sorted(SOURCES.glob("*.c"))]
    done = subprocess.run(
        [program, *_FLAGS, *extra_flags, "-o", str(unfinished), *sources], check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise BinaryError(NAME, f"could not be built:\n{done.stderr.strip()}", "read the message of the compiler above")
    unfinished.replace(path)


class FakeNvml:
    """One such machine, in a folder of its own. Every change shows in the next call of any process."""

    def __init__(self, folder: Path, machine: str | Path = "dgx-h100", *, library_path: Path | None = None) -> None:
        """machine: the name of a shipped description, or the path of another. Raises FileNotFoundError, BinaryError."""
        self.description = folder / "machine"
        self.control = folder / "control"
        self.calls = folder / "calls"
        self._library = library_path or library()
        folder.mkdir(parents=True, exist_ok=True)
        source = machine if isinstance(machine, Path) else MACHINES / f"{machine}.machine"
        if not source.is_file():
            raise FileNotFoundError(f"no machine {machine!r}; there are: {', '.join(machines())}")
        self.description.write_bytes(source.read_bytes())
        self.control.write_bytes(b"")
        self.calls.unlink(missing_ok=True)

    def environment(self, inherited: Mapping[str, str] | None = None, *, records_calls: bool = False) -> dict[str, str]:
        """The environment of a process that uses this machine; inherited: by default that of this process."""
        base = dict(os.environ if inherited is None else inherited)
        folders = [str(self._library.parent), *filter(None, [base.get("LD_LIBRARY_PATH")])]
        base |= {
            "LD_LIBRARY_PATH": os.pathsep.join(folders),
            DESCRIPTION_VARIABLE: str(self.description),
            CONTROL_VARIABLE: str(self.control),
        }
        if records_calls:
            base[CALLS_VARIABLE] = str(self.calls)
        return base

    def write(self, *lines: str | bytes) -> None:
        """Append statements to the control file, all at once."""
        with self.control.open("ab", buffering=0) as control:
            control.write(b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines))

    def lose(self, gpu: int | str) -> None:
        """The GPU falls off the bus: NVML still lists it, but every call about it fails."""
        self.write(f"lose {gpu}")

    def remove(self, gpu: int | str) -> None:
        """The GPU leaves the list of GPUs at the next nvmlInit; its handles fail at once."""
        self.write(f"remove {gpu}")

    def add(self, gpu: int | str) -> None:
        """Bring back a lost or removed GPU, from the next nvmlInit on."""
        self.write(f"add {gpu}")

    def reset(self, gpu: int | str, uuid: str | None = None) -> None:
        """Reset the GPU: no longer lost, its volatile counters zero; with another UUID, if given."""
        self.write(f"reset {gpu}" + (f" uuid={uuid}" if uuid else ""))

    def set(self, gpu: int | str, **attributes: int | str) -> None:
        """Change attributes; an underscore in a name stands for a dash."""
        words = (f'{key.replace("_", "-")}="{value}"' for key, value in attributes.items())
        self.write(f"set {gpu} {' '.join(words)}")

    def xid(self, gpu: int | str, number: int, times: int = 1) -> None:
        """Report an Xid, as a driver does: waiting callers of the event set wake."""
        self.write(f"xid {gpu} {number} {times}")

    def mig(self, gpu: int | str, mode: str) -> None:
        """Switch MIG mode (enabled, disabled): at once and without instances."""
        self.set(gpu, mig=mode)

    def create(self, gpu: int | str, profile: str, **options: int | str) -> None:
        """Create a GPU instance such as 1g.10gb in a GPU in MIG mode; options: start, compute, uuid (see the README)."""
        self.write(" ".join([f"create {gpu} {profile}", *(f"{key}={value}" for key, value in options.items())]))

    def destroy(self, gpu: int | str, instance: int | str = "*") -> None:
        """Remove a GPU instance by its ID, with its compute instances; without an ID all of them."""
        self.write(f"destroy {gpu} {instance}")

    def break_function(self, gpu: int | str, function: str, error: str) -> None:
        """From now on this function fails with this error (UNKNOWN, NOT_SUPPORTED, ...) for this GPU."""
        self.write(f"break {gpu} {function} {error}")

    def hang(self, gpu: int | str, function: str, seconds: float | None = None) -> None:
        """From now on this function hangs, each call for this long or until `repair`."""
        self.write(f"hang {gpu} {function}" + (f" {seconds}" if seconds else ""))

    def repair(self, gpu: int | str, function: str = "") -> None:
        """End break_function and hang of the same arguments; without a function, all of them for this GPU."""
        self.write(f"repair {gpu} {function}".rstrip())

    def recorded_calls(self) -> list[Call]:
        """Calls so far by processes that were started with records_calls."""
        text = self.calls.read_text() if self.calls.exists() else ""
        return [_call(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _call(line: str) -> Call:
    milliseconds, function, slot, result = line.split()
    return Call(
        int(milliseconds), function, None if slot == "-" else int(slot), None if result == "hangs" else int(result)
    )


if __name__ == "__main__":
    try:
        print(library())
    except BinaryError as error:
        sys.exit(str(error))
