"""The fake NVML fed with garbage, and called from many threads: it reports what it skips, and no sanitizer finds a fault."""

import os
import random
import subprocess
from pathlib import Path

import pynvml
import pytest

from hack.fake_nvml.library import CONTROL_VARIABLE, DESCRIPTION_VARIABLE, SOURCES, FakeNvml, compiler
from tests.nvml.answers import Start
from tests.nvml.nvml_process import NvmlProcess

# one string a line, so that a table of words stays a table
_WORDS = " ".join(
    (
        "driver nvml cuda init lists model gpu link switch nvlink set lose remove add reset break repair xid event",
        "profile create destroy",
        "0 1 7 8 -1 99999999999999999999 * h100 GPU-x 00000000:1B:00.0 nvmlDeviceGetName nvmlDeviceGetCount_v2 up down",
        "UNKNOWN GPU_IS_LOST NVML_ERROR_NOT_SUPPORTED uuid=GPU-y uuid= memory=80GiB memory=-3 memory=9999999GiB",
        "numa=3 numa=x nvlinks=36 nvlinks=37 ecc=enabled ecc=perhaps retired-double=64 cpus=0-9999999,7 cpus=x-,,",
        '# "a b" " = =x at-init at-once 13 31 8 pci= pci=zz:zz compute=x unsupported=,,*,nvmlDeviceGetUUID',
        "mig=enabled mig=disabled mig-pending=enabled 1g.10gb 3g.40gb 1g.10gb+me start=4 compute=1,2 compute= uuid=MIG-x 5/0",
    )
).split()


def garbage(seed: int, lines: int) -> bytes:
    """Lines that are statements, nearly statements, or bytes."""
    chosen = random.Random(seed)
    text = bytearray()
    for _ in range(lines):
        if chosen.random() < 0.02:
            # as long as a line may just be, or just not
            text += b"set 0 name=" + b"x" * chosen.randrange(4080, 4090)
        elif chosen.random() < 0.1:
            text += chosen.randbytes(chosen.randrange(200)).replace(b"\n", b" ")
        else:
            text += " ".join(chosen.choices(_WORDS, k=chosen.randrange(1, 7))).encode()
        text += b"\n"
    return bytes(text)


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("explode 0", 'no statement begins with "explode"'),
        ("lose 8", 'no GPU "8": name one by slot (0 to 7)'),
        ("set 0 memory=much", 'memory is "much"; it must be a size such as 80GiB'),
        ("set 0 colour=red", 'a GPU has no attribute "colour"'),
        ("set 0 temperature=1e3", "a whole number from 0 to 1000"),
        ("break 0 nvmlDeviceGetName BROKEN", '"BROKEN" is not an error of NVML'),
        ("hang 0 nvmlDeviceGetName soon", '"soon" is not a number of seconds'),
        ('set 0 name="unfinished', "a quotation mark that is not closed"),
        ("link 0 0", "a GPU is not linked to itself"),
        ("link 0 1", "not enough NVLinks left"),
        ("xid 0", "xid with 1 words after it"),
        ("profile h100 1g.10gb", "profile with 2 words after it"),
        ("create 0 1g.10gb", "GPU 0 is not in MIG mode: set mig=enabled first"),
        ("xid 0 79\0", "a NUL byte"),
        ("xid 0 " + "7" * 5000, "too long"),
    ],
)
def test_an_invalid_line_is_skipped_and_reported(line: str, output: str, dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpu = nvml.open()[0]
    dgx.write(line, "set 0 temperature=77")
    assert nvml.call("nvmlDeviceGetTemperature", gpu, 0) == 77
    status, errors = nvml.end()
    assert status == 0
    assert f"{dgx.control}:1: " in errors
    assert output in errors


def test_a_partly_valid_line_changes_nothing(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpu = nvml.open()[0]
    dgx.write("set 0 temperature=77 utilization=101")
    assert nvml.call("nvmlDeviceGetTemperature", gpu, 0) == 30


def test_an_incomplete_line_is_not_read_yet(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpu = nvml.open()[0]
    dgx.control.write_bytes(b"set 0 temperature=7")
    assert nvml.call("nvmlDeviceGetTemperature", gpu, 0) == 30
    dgx.write("7")
    assert nvml.call("nvmlDeviceGetTemperature", gpu, 0) == 77


def test_many_invalid_lines_are_reported_in_a_few(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    nvml.open()
    dgx.write(*["nonsense"] * 1000)
    assert nvml.call("nvmlDeviceGetCount") == 8
    assert 10 < len(nvml.end()[1].splitlines()) < 30


@pytest.mark.parametrize("description", [None, "", "/nonexistent/machine", "/"])
def test_without_a_description_there_is_no_driver(description: str | None, dgx: FakeNvml) -> None:
    environment = dgx.environment()
    environment.pop(DESCRIPTION_VARIABLE)
    if description is not None:
        environment[DESCRIPTION_VARIABLE] = description
    nvml = NvmlProcess(environment)
    assert nvml.error("nvmlInit") == pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    status, output = nvml.end()
    assert status == 0
    assert output.startswith(f"fake NVML: {description or DESCRIPTION_VARIABLE}")


def test_a_description_of_garbage_is_a_machine_with_what_could_be_read(tmp_path: Path, start: Start) -> None:
    written = tmp_path / "garbage"
    written.write_bytes(garbage(1, 300) + b"model plain\ngpu plain uuid=GPU-survivor\nrepair *\ninit SUCCESS\n")
    nvml = start(FakeNvml(tmp_path / "machine", written))
    gpus = [nvml.call("nvmlDeviceGetUUID", gpu) for gpu in nvml.open()]
    assert gpus[-1] == "GPU-survivor"
    status, output = nvml.end()
    assert status == 0
    assert output.isascii()


def test_dev_zero_as_control_file_is_ignored(dgx: FakeNvml) -> None:
    nvml = NvmlProcess({**dgx.environment(), CONTROL_VARIABLE: "/dev/zero"})
    assert len(nvml.open()) == 8
    assert nvml.end()[0] == 0


def compiled(folder: Path, sanitizers: str) -> Path:
    """The library and the program that hammers it, in one; skips where the compiler has no such sanitizer."""
    program = compiler()
    if program is None:
        pytest.skip("needs a C compiler: install gcc or clang")
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}"]
    made, probe = folder / "hammer", folder / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    sanitized = [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    probed = subprocess.run([program, *sanitized, "-o", str(made), str(probe)], check=False, capture_output=True)
    if probed.returncode != 0 or subprocess.run([made], check=False, capture_output=True).returncode != 0:
        pytest.skip(f"the compiler has no -fsanitize={sanitizers}: install its sanitizer libraries")
    sources = [str(Path(__file__).parent / "hammer.c"), *map(str, sorted(SOURCES.glob("*.c")))]
    subprocess.run([program, *flags, *sanitized, "-o", str(made), *sources], check=True, capture_output=True)
    return made


@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_sanitizers_find_nothing_with_many_threads_and_garbage(sanitizers: str, dgx: FakeNvml, tmp_path: Path) -> None:
    made = compiled(tmp_path, sanitizers)
    script = tmp_path / "script"
    script.write_bytes(
        b"set * retired-double=5 unsupported= mig=enabled\ncreate 0 3g.40gb compute=1,2\n" + garbage(2, 2000)
    )
    environment = {**os.environ, DESCRIPTION_VARIABLE: str(dgx.description), CONTROL_VARIABLE: str(dgx.control)}
    done = subprocess.run([made, script], check=False, capture_output=True, env=environment, timeout=300)
    assert (done.returncode, [line for line in done.stderr.splitlines() if b"fake NVML:" not in line]) == (0, [])
    assert int(done.stdout) > 1000
