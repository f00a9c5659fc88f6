"""The reader of the driver loads nothing that it does not need."""

import subprocess
import sys


def test_the_reader_is_small() -> None:
    code = "import sys, nodedevice_agent.plugins.nvml.reader.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    big = {"grpc", "asyncio", "google", "yaml", "prometheus_client", "hashlib"}
    assert loaded & {"pynvml", *big} == {"pynvml"}
