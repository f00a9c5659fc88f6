"""Why the driver cannot be read, in words that fit what the process and the node have of its files."""

import errno
import os
from pathlib import Path

import pynvml
import pytest
from nodedevice_agent.plugins.nvml.reader import driver
from nodedevice_agent.plugins.nvml.reader.access import DriverFiles
from nodedevice_agent.plugins.nvml.reader.messages import Problem
from nodedevice_agent.plugins.nvml.reader.problems import (
    DriverProblem,
    no_gpu,
    problem_of_library,
    problem_of_start,
    text_of,
)

UNKNOWN, NOT_LOADED = pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_DRIVER_NOT_LOADED
GIVE = "give the agent's container the driver's device files (chart: agents.runtimeClassName, or agents.privileged)"
MAKE = "make it on the node (nvidia-modprobe -c MINOR -u, or nvidia-smi as root)"
OPENED = "the NVIDIA driver cannot be opened: "
ABSENT = Problem("DriverNotLoaded", "the NVIDIA kernel driver is not loaded: modprobe nvidia", is_absent=True)


@pytest.fixture
def files(tmp_path: Path) -> DriverFiles:
    """A container and its node, where the driver is loaded and has made its files; the container has none."""
    for name in ("here/dev", "node/dev", "node/proc/driver/nvidia"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "node/proc/driver/nvidia/version").touch()
    for name in ("nvidiactl", "nvidia0"):
        (tmp_path / "node/dev" / name).touch()
    return DriverFiles(str(tmp_path / "here"), str(tmp_path / "node"))


def start(files: DriverFiles, error: int) -> Problem:
    return problem_of_start(pynvml.NVMLError(error), files).problem


def give(files: DriverFiles, name: str) -> None:
    Path(files.dev, "dev", name).touch()


def deny(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(path: str, flags: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)


def test_a_missing_file_that_the_node_has(files: DriverFiles) -> None:
    message = f"{OPENED}/dev/nvidiactl is missing here, and the host has it: {GIVE}"
    for error in (NOT_LOADED, UNKNOWN, pynvml.NVML_ERROR_NO_PERMISSION):
        assert start(files, error) == Problem("DriverFailed", message)


def test_a_missing_file_that_the_node_lacks(files: DriverFiles) -> None:
    Path(files.host, "dev/nvidiactl").unlink()
    assert start(files, NOT_LOADED) == Problem("DriverFailed", f"{OPENED}/dev/nvidiactl is missing: {MAKE}")
    # one file tree
    assert DriverFiles(files.host, files.host).problem_with("/dev/nvidia7") == f"/dev/nvidia7 is missing: {MAKE}"


def test_a_driver_that_is_not_loaded(files: DriverFiles) -> None:
    Path(files.host, "proc/driver/nvidia/version").unlink()
    assert start(files, NOT_LOADED) == ABSENT
    assert start(files, UNKNOWN).message.startswith(f"{OPENED}/dev/nvidiactl is missing")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EPERM, f"the device cgroup denies /dev/nvidiactl: {GIVE}"),
        (errno.EACCES, f"its permissions deny /dev/nvidiactl to user {os.geteuid()}: {GIVE}"),
        (errno.ENOTDIR, f"/dev/nvidiactl is missing here, and the host has it: {GIVE}"),
        (errno.EIO, "/dev/nvidiactl cannot be opened (Input/output error): see the kernel log"),
    ],
)
def test_what_cannot_be_opened(files: DriverFiles, monkeypatch: pytest.MonkeyPatch, number: int, words: str) -> None:
    give(files, "nvidiactl")
    deny(monkeypatch, number)
    assert start(files, UNKNOWN) == Problem("DriverFailed", OPENED + words)


def test_where_the_file_can_be_opened_it_is_what_nvml_says(files: DriverFiles) -> None:
    give(files, "nvidiactl")
    assert start(files, UNKNOWN).message == "the NVIDIA driver cannot be read: Unknown Error"
    assert start(files, NOT_LOADED) == ABSENT
    denied = "the NVIDIA driver denies access: this process needs /dev/nvidiactl and /dev/nvidia*"
    assert start(files, pynvml.NVML_ERROR_NO_PERMISSION) == Problem("DriverFailed", denied)
    assert text_of(pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)) == denied
    assert text_of(pynvml.NVMLError(UNKNOWN)) == "Unknown Error"


def test_other_errors_have_nothing_to_do_with_files(files: DriverFiles) -> None:
    assert start(files, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH).reason == "DriverMismatch"
    assert start(files, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND).reason == "DriverTooOld"


def listed_by_the_driver(files: DriverFiles, bus_id: str, text: str | None) -> None:
    folder = Path(files.host, "proc/driver/nvidia/gpus", bus_id)
    folder.mkdir(parents=True)
    if text is not None:
        (folder / "information").write_text(text)


def test_gpus_that_nvml_does_not_list(files: DriverFiles) -> None:
    assert no_gpu(files) == Problem("NoGpu", "the NVIDIA driver lists no GPU", is_absent=True)
    listed_by_the_driver(files, "0000:1B:00.0", "Model: H100\nDevice Minor: \t 0\nGPU Excluded:\t No\n")
    missing = (
        f"the driver has the GPU at 0000:1b:00.0 and NVML does not list it: "
        f"/dev/nvidia0 is missing here, and the host has it: {GIVE}"
    )
    assert no_gpu(files) == Problem("DriverFailed", missing)
    assert files.unlisted({"0000:1b:00.0"}) == []
    give(files, "nvidia0")
    assert files.unlisted(()) == [missing.partition(": /dev")[0] + ": see the kernel log"]


def test_gpus_that_the_driver_excludes_or_does_not_number(files: DriverFiles) -> None:
    listed_by_the_driver(files, "0000:01:00.0", "GPU Excluded: Yes\nDevice Minor: 1\n")
    listed_by_the_driver(files, "0000:02:00.0", None)
    words = "the driver has the GPU at 0000:02:00.0 and NVML does not list it: its device file is unknown"
    assert files.unlisted({"0000:03:00.0"}) == [words]


def test_a_library_that_is_not_loaded() -> None:
    path = "/driver/libnvidia-ml.so.1"
    absent = problem_of_library(path, OSError(f"{path}: cannot open shared object file: No such file or directory"))
    assert (absent.reason, absent.is_absent) == ("NoDriverLibrary", True)
    assert f"{path} is not found: install the NVIDIA driver" in absent.message
    broken = problem_of_library(path, OSError(f"{path}: invalid ELF header"))
    assert (broken.reason, broken.is_absent) == ("DriverFailed", False)
    assert f"{path} cannot be loaded (invalid ELF header)" in broken.message
    # one that it needs
    text = "libm.so.9: cannot open shared object file: No such file or directory"
    assert problem_of_library(path, OSError(text)).reason == "DriverFailed"


@pytest.mark.parametrize("slash", ["", "/"])
def test_the_library_is_loaded_by_its_path(tmp_path: Path, slash: str) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    with pytest.raises(DriverProblem, match=f"{tmp_path}/libnvidia-ml.so.1 cannot be loaded"):
        driver.Driver("/", f"{tmp_path}{slash}").open()
