"""Measures agent and operator on a node: memory in MiB (memory.py), CPU in time that the kernel accounts to the process."""

import json
import time
from collections.abc import Callable
from itertools import pairwise
from uuid import UUID

import psutil
import yaml

from hack.bench.load import GPUS, PODS, available, event_loop, full_node, status
from hack.bench.memory import charged_mib
from hack.bench.results import Result, information, judged, result, worst
from tests.cluster.cluster import a_pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import GPU, NODE_A, NODE_B, Program, Stack
from tests.cluster.observe import Observer, Seen
from tests.fakes.plugin import FakeDevice, FakePlugin

_SECONDS = 60
_SETTLING_SECONDS = 2
_RUNS = 60
_DEVICES = 1000
_MANY = "bench.example.com/many"
NODE_PARTS, PARTS_NAME = "node-parts", "bench.example.com/memory"
DEVICES_WITH_PARTS, PARTS = 8, 80
MIB = 2**20
_WRITES = ("create", "update", "patch", "delete")


def idle(stack: Stack, devices: Observer) -> tuple[dict[str, Result], float]:
    """Measure an idle minute, with 8 devices and 110 pods on the node; 8 of the pods hold a device.

    agent_idle_cpu: percent of a core over the whole minute, and in its worst second. agent_idle_writes: API writes of
    both agents in that time, without their Leases. agent_rss: includes mapped code. Also returns the MiB of the agent
    with the pods.
    """
    agent, operator = _process(stack.agents[NODE_A]), _process(stack.operator)
    with full_node(stack, devices, NODE_A, GPU, GPUS, GPUS):
        # the last pod's changes are still on their way: to the agent, and into the audit log
        time.sleep(_SETTLING_SECONDS)
        writes = _agent_writes(stack)
        cpu, memory, agent_rss, operator_rss = [cpu_seconds(agent.pid)], [], [], []
        began = time.monotonic()
        for second in range(1, _SECONDS + 1):
            time.sleep(max(0.0, began + second - time.monotonic()))
            cpu.append(cpu_seconds(agent.pid))
            memory.append(charged_mib(agent.pid))
            agent_rss.append(agent.memory_info().rss / MIB)
            operator_rss.append(operator.memory_info().rss / MIB)
        passed = time.monotonic() - began
        writes = _agent_writes(stack) - writes
    each = [100 * (after - before) for before, after in pairwise(cpu)]
    rows = {
        "agent_memory": result(memory, "MiB", 40),
        "agent_rss": information(agent_rss, "MiB"),
        "agent_idle_cpu": judged(100 * (cpu[-1] - cpu[0]) / passed, worst(each), "%", 0.3, _SECONDS),
        "agent_idle_writes": judged(writes, writes, "writes", 0, _SECONDS),
        "operator_rss": result(operator_rss, "MiB", 96),
    }
    return rows, rows["agent_memory"].value


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
            # the agent sees its own write come back, and this work counts
            time.sleep(0.2)
            measured.append(1000 * (cpu_seconds(agent.pid) - before))
            devices.forget()
        with full_node(stack, devices, NODE_B, _MANY, _DEVICES, PODS):
            memory = [_memory_after(agent, 0.1) for _ in range(_RUNS)]
        call(plugin.stop())
    return {"update_1000_cpu": result(measured, "ms", 50), "agent_memory_1000": result(memory, "MiB", 48)}


def parts(stack: Stack, devices: Observer, whole: float) -> dict[str, Result]:
    """Eight devices of 80 parts, on a node with 110 pods. whole: MiB of an agent with eight whole devices and as many pods.

    parts_memory: MiB added by the parts. parts_cpu: the agent's CPU time for a new pod, until its status is written and seen.
    parts_status_40, parts_status_110: the agent's part of the status as JSON, in KiB, with so many pods that hold some.
    """
    agent = _process(stack.agents[NODE_PARTS])
    total = DEVICES_WITH_PARTS * PARTS
    namespace = "parts"
    stack.control_plane.add_namespace(namespace)
    pods = [a_pod(f"pod-{number}", namespace, {PARTS_NAME: 5}, NODE_PARTS) for number in range(PODS)]
    cpu, sizes = [], {}
    for number, pod in enumerate(pods, start=1):
        began, before = time.monotonic(), cpu_seconds(agent.pid)
        stack.control_plane.apply(yaml.safe_dump(pod))
        seen = devices.wait(_has_available(total - 5 * number, NODE_PARTS, PARTS_NAME), began)
        # the agent sees its own write come back, and this work counts
        time.sleep(0.2)
        cpu.append(1000 * (cpu_seconds(agent.pid) - before))
        sizes[number] = len(json.dumps(status(seen, NODE_PARTS, PARTS_NAME), separators=(",", ":"))) / 1024
        devices.forget()
    more = [_memory_after(agent, 0.1) - whole for _ in range(_RUNS)]
    stack.control_plane.remove_namespace(namespace)
    return {
        "parts_memory": result(more, "MiB", 4),
        "parts_cpu": result(cpu, "ms", 30),
        "parts_status_40": judged(sizes[40], sizes[40], "KiB", 12, 1),
        "parts_status_110": judged(sizes[110], sizes[110], "KiB", 40, 1),
    }


def _has_available(count: int, node_name: str = NODE_B, resource_name: str = _MANY) -> Callable[[Seen], bool]:
    return lambda seen: available(seen, node_name, resource_name) == count


def _process(program: Program) -> psutil.Process:
    assert program.process.pid is not None
    return psutil.Process(program.process.pid)


def _memory_after(process: psutil.Process, seconds: float) -> float:
    time.sleep(seconds)
    return charged_mib(process.pid)


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process so far, to the nanosecond (/proc counts in hundredths of a second)."""
    # how the C library's clock_getcpuclockid names another process's clock
    return time.clock_gettime((~pid << 3) | 2)


def _agent_writes(stack: Stack) -> int:
    """Writes of all agents so far, except renewals of Leases."""
    assert isinstance(stack.control_plane, ControlPlane)
    return sum(
        event["verb"] in _WRITES
        and event["user"]["username"].endswith(":nodedevice-agent")
        and event["objectRef"]["resource"] != "leases"
        for event in stack.control_plane.audit_events()
    )
