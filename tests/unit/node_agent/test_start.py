"""What a start of the agent imports: every module costs each node time and memory."""

import subprocess
import sys
from functools import cache

_START = """
import gc, sys
from nodedevice_agent import __main__
sys.argv = ["nodedevice-agent", "run", "--help"]
try:
    __main__.main()
except SystemExit:
    print("interval", sys.getswitchinterval())
    print("loaded", gc.isenabled(), gc.get_freeze_count() > 10_000, *sys.modules)
"""


@cache
def _lines() -> list[str]:
    done = subprocess.run([sys.executable, "-c", _START], check=True, capture_output=True, encoding="utf-8")
    return done.stdout.splitlines()[-2:]


def _started() -> tuple[bool, bool, frozenset[str]]:
    """Whether garbage is collected, whether modules are exempt, and the modules."""
    _, collects, exempt, *modules = _lines()[-1].split()
    return collects == "True", exempt == "True", frozenset(modules)


def test_a_thread_gives_way_to_the_event_loop_within_a_millisecond() -> None:
    """One decodes what plugins send, whatever that is, while the container runtime waits for an answer."""
    assert _lines()[0] == "interval 0.001"


UNUSED = {
    "nodedevice_agent.cli.plugins",
    "nodedevice_agent.cli.checkpoint",
    "nodedevice_agent.plugins.generic.source",
    "nodedevice_agent.plugins.simulated.source",
    "nodedevice_agent.plugins.nvml.watch",
    "nodedevice_agent.plugins.nvml.environment",
    "nodedevice_agent.plugins.nvml.node_gpus",
    "nodedevice_agent.runtime.backend",
    "nodedevice_agent.kubelet.backend",
    "nodedevice_agent.deviceplugin.plugin_watcher",
    "pynvml",
    "tomllib",
    "yaml",
}


def test_an_agent_imports_no_more_than_it_needs() -> None:
    assert UNUSED & _started()[2] == set()


def test_the_program_is_there_and_modules_are_no_garbage() -> None:
    collects, exempt, modules = _started()
    assert collects
    assert exempt
    assert {"nodedevice_agent.agent", "grpc", "httptools"} <= modules
