"""Of a large buffer nothing stays when it is freed, however many there were; and those of TLS connections are small."""

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


_CONNECTIONS = """
import asyncio
import ssl
import sys
import tracemalloc
from asyncio.sslproto import SSLProtocol
from nodedevice_operator import __main__

async def connect():
    loop, context = asyncio.get_running_loop(), ssl.create_default_context()
    tracemalloc.start()
    made = [SSLProtocol(loop, asyncio.Protocol(), context, None) for _ in range(8)]
    print(tracemalloc.get_traced_memory()[0] // len(made))

if sys.argv[1] == "program":
    __main__.main(["crds", "--help"], standalone_mode=False)
asyncio.run(connect())
"""


@pytest.mark.parametrize(("called", "is_small"), [("not", False), ("program", True)])
def test_a_tls_connection_has_a_small_buffer(called: str, *, is_small: bool) -> None:
    command = [sys.executable, "-c", _CONNECTIONS, called]
    done = subprocess.run(command, check=True, capture_output=True, encoding="utf-8")
    assert (int(done.stdout.split()[-1]) < 64 * 1024) == is_small
