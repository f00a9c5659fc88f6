"""What the agent takes of a node that is full: memory in MiB of resident set, CPU in percent of a core, while nothing happens."""

import time
from itertools import pairwise

import psutil

from hack.bench.results import Result, judged, result, worst
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod

# the kubelet's default bound of pods on a node
_PODS = 110
_HOLDERS = 8
_AT_ONCE = 10
_SECONDS = 30
_MIB = 2**20


def full(of: NodeUnderTest) -> dict[str, Result]:
    """With 110 running pods, 8 of which hold a device each."""
    resource = of.kinds["many"].resource
    names = [f"full-{number}" for number in range(_PODS)]
    for first in range(0, _PODS, _AT_ONCE):
        for number in range(first, min(first + _AT_ONCE, _PODS)):
            limits = {resource: 1} if number < _HOLDERS else None
            of.create(pod(names[number], [container("main", limits)]))
        for number in range(first, min(first + _AT_ONCE, _PODS)):
            of.wait_running(names[number])
    pid = of.agent.pid
    assert pid is not None
    cpu, rss = [_cpu_seconds(pid)], []
    began = time.monotonic()
    for second in range(1, _SECONDS + 1):
        time.sleep(max(0.0, began + second - time.monotonic()))
        cpu.append(_cpu_seconds(pid))
        rss.append(psutil.Process(pid).memory_info().rss / _MIB)
    passed = time.monotonic() - began
    of.remove_pods()
    each = [100 * (after - before) for before, after in pairwise(cpu)]
    return {
        "agent_rss_110": result(rss, "MiB", 64),
        "agent_cpu_110": judged(100 * (cpu[-1] - cpu[0]) / passed, worst(each), "%", 0.3, _SECONDS),
    }


def _cpu_seconds(pid: int) -> float:
    """Of all threads of a process so far, to the nanosecond (/proc counts in hundredths of a second)."""
    # how the C library's clock_getcpuclockid names another process's clock
    return time.clock_gettime((~pid << 3) | 2)
