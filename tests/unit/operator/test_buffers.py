"""Of a large buffer nothing stays when it is freed, however many there were."""

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import ctypes
import sys
from nodedevice_operator import __main__, buffers

class Statistics(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks mapped bytes usmblks fsmblks used free keepcost".split()]

def mapped():
    count = ctypes.CDLL(None).mallinfo2
    count.restype = Statistics
    return count().mapped

if sys.argv[1] == "program":
    __main__.main(["crds", "--help"], standalone_mode=False)
elif sys.argv[1] == "call":
    buffers.keep_small()
buffer = bytes(1 << 20)
del buffer
before = mapped()
buffer = bytes(1 << 20)
print(mapped() - before)
"""


@pytest.mark.parametrize(
    ("called", "environment", "mapped"),
    [
        pytest.param("not", {}, "0", id="as the C library does"),
        pytest.param("call", {}, "1", id="called"),
        pytest.param("program", {}, "1", id="by the program"),
        pytest.param("call", {"MALLOC_MMAP_THRESHOLD_": "4194304"}, "0", id="another choice"),
    ],
)
def test_a_large_buffer_comes_from_the_kernel_again(called: str, environment: dict[str, str], mapped: str) -> None:
    others = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", _PROGRAM, called]
    done = subprocess.run(command, env=others | environment, check=True, capture_output=True, encoding="utf-8")
    assert done.stdout.split()[-1] == mapped
