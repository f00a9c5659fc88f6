"""Only the reader loads NVIDIA's library, and the reader loads nothing that it does not need."""

import subprocess
import sys


def loaded_by(module: str) -> set[str]:
    code = f"import sys, {module}; print(' '.join(name.partition('.')[0] for name in sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_the_reader_is_small() -> None:
    big = {"grpc", "asyncio", "google", "yaml", "prometheus_client", "hashlib"}
    assert loaded_by("nodedevice_agent.plugins.nvml.reader.__main__") & {"pynvml", *big} == {"pynvml"}


def test_the_agent_never_loads_the_driver_library() -> None:
    assert "pynvml" not in loaded_by("nodedevice_agent.cli.run")
