"""What agent and operator take of a node: memory in MiB of resident set, CPU in time that the kernel accounts to the process."""

import time
from collections.abc import Callable
from itertools import pairwise
from uuid import UUID

import psutil

from hack.bench.load import GPUS, PODS, available, event_loop, full_node
from hack.bench.results import Result, judged, result, worst
from hack.cluster.control_plane.control_plane import ControlPlane
from hack.cluster.local.stack import GPU, NODE_A, NODE_B, Program, Stack
from hack.cluster.observe import Observer, Seen
from tests.fakes.plugin import FakeDevice, FakePlugin

_SECONDS = 60
_SETTLING_SECONDS = 2
_RUNS = 60
_DEVICES = 1000
_MANY = "bench.example.com/many"
MIB = 2**20
_WRITES = ("create", "update", "patch", "delete")


def idle(stack: Stack, devices: Observer) -> dict[str, Result]:
    """A minute in which nothing happens, with 8 devices and 110 pods on the node, 8 of which hold one.

    agent_idle_cpu: percent of a core over the whole minute, and of its worst second. agent_idle_writes: what both agents wrote to
    the API in that time, their Leases apart.
    """
    agent, operator = _process(stack.agents[NODE_A]), _process(stack.operator)
    with full_node(stack, devices, NODE_A, GPU, GPUS, GPUS):
        # what the last pod brought is still on its way: to the agent, and into the audit log
        time.sleep(_SETTLING_SECONDS)
        writes = _agent_writes(stack)
        cpu, agent_rss, operator_rss = [cpu_seconds(agent.pid)], [], []
        began = time.monotonic()
        for second in range(1, _SECONDS + 1):
            time.sleep(max(0.0, began + second - time.monotonic()))
            cpu.append(cpu_seconds(agent.pid))
            agent_rss.append(agent.memory_info().rss / MIB)
            operator_rss.append(operator.memory_info().rss / MIB)
        passed = time.monotonic() - began
        writes = _agent_writes(stack) - writes
    each = [100 * (after - before) for before, after in pairwise(cpu)]
    return {
        "agent_rss": result(agent_rss, "MiB", 64),
        "agent_idle_cpu": judged(100 * (cpu[-1] - cpu[0]) / passed, worst(each), "%", 0.3, _SECONDS),
        "agent_idle_writes": judged(writes, writes, "writes", 0, _SECONDS),
        "operator_rss": result(operator_rss, "MiB", 96),
    }


def many_devices(stack: Stack, devices: Observer) -> dict[str, Result]:
    """1,000 devices, named as GPUs are: the agent's CPU time for one list with one change in it; its memory with 110 pods."""
    agent = _process(stack.agents[NODE_B])
    ids = [f"GPU-{UUID(int=0x1234567 << 96 | index)}" for index in range(_DEVICES)]
    plugin = FakePlugin(_MANY, {device_id: FakeDevice() for device_id in ids})
    with event_loop() as call:
        call(plugin.start(stack.agents[NODE_B].plugin_dir))
        began = time.monotonic()
        call(plugin.register())
        devices.wait(_has_available(_DEVICES), began)
        measured = []
        for run in range(_RUNS):
            device_id, is_healthy = ids[run // 2], run % 2 == 1
            began, before = time.monotonic(), cpu_seconds(agent.pid)
            call(plugin.set_health(device_id, is_healthy))
            wanted = _DEVICES if is_healthy else _DEVICES - 1
            devices.wait(_has_available(wanted), began)
            # the agent sees its own write come back, and what it took is counted too
            time.sleep(0.2)
            measured.append(1000 * (cpu_seconds(agent.pid) - before))
            devices.forget()
        with full_node(stack, devices, NODE_B, _MANY, _DEVICES, PODS):
            rss = [_rss_after(agent, 0.1) for _ in range(_RUNS)]
        call(plugin.stop())
    return {"update_1000_cpu": result(measured, "ms", 50), "agent_rss_1000": result(rss, "MiB", 96)}


def _has_available(count: int) -> Callable[[Seen], bool]:
    return lambda seen: available(seen, NODE_B, _MANY) == count


def _process(program: Program) -> psutil.Process:
    assert program.process.pid is not None
    return psutil.Process(program.process.pid)


def _rss_after(process: psutil.Process, seconds: float) -> float:
    time.sleep(seconds)
    return float(process.memory_info().rss / MIB)


def cpu_seconds(pid: int) -> float:
    """Of all threads of a process so far, to the nanosecond (/proc counts in hundredths of a second)."""
    # how the C library's clock_getcpuclockid names another process's clock
    return time.clock_gettime((~pid << 3) | 2)


def _agent_writes(stack: Stack) -> int:
    """Writes of all agents so far that were no renewal of a Lease."""
    assert isinstance(stack.control_plane, ControlPlane)
    return sum(
        event["verb"] in _WRITES
        and event["user"]["username"].endswith(":nodedevice-agent")
        and event["objectRef"]["resource"] != "leases"
        for event in stack.control_plane.audit_events()
    )
