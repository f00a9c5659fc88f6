"""What the product says of a node, where a test asks for more than devices: conditions, Events, the agent's log; what opens."""

import json
import re
from contextlib import suppress
from typing import Final

from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.errors import CommandError
from tests.e2e.chart.cluster import NODE, Json
from tests.e2e.machine.cluster import SERIAL, MachineCluster

# why a container waits for its device: the agent lists it no more, or does so still and its file is gone
NOT_THERE: Final = r"cannot start: device \S+ of \S+ is not there|of the host: No such file or directory"
_AGENTS = {"app.kubernetes.io/component": "agent"}


def condition(cluster: MachineCluster, kind: str, resource: str = SERIAL, node: str = NODE) -> tuple[str, str]:
    """Status and reason."""
    conditions = cluster.node_device(resource, node)["status"]["conditions"]
    return next((each["status"], each["reason"]) for each in conditions if each["type"] == kind)


def wait_condition(cluster: MachineCluster, kind: str, status: str, reason: str, resource: str = SERIAL) -> None:
    cluster.wait(
        lambda: condition(cluster, kind, resource) == (status, reason), f"{kind} of {resource} is {status}, {reason}"
    )


def wait_event(cluster: MachineCluster, name: str, pattern: str) -> None:
    """Wait until the message of an Event about the object matches the pattern."""

    def is_said() -> bool:
        events = cluster.get("events", "-A", f"--field-selector=involvedObject.name={name}")["items"]
        return any(re.search(pattern, each.get("message", "")) for each in events)

    cluster.wait(is_said, f"an Event of {name} says {pattern!r}", every_seconds=0.5)


def wait_logged(cluster: MachineCluster, *texts: str) -> None:
    """Until a line of the agent's log has all these texts."""
    (label,) = _AGENTS.items()
    agents = ("-n", SYSTEM_NAMESPACE, "-l", "=".join(label))

    def is_logged() -> bool:
        lines = cluster.control_plane.kubectl("logs", *agents, "--tail=-1", check=False).splitlines()
        return any(all(text in line for text in texts) for line in lines)

    cluster.wait(is_logged, f"the agent logs {' … '.join(texts)!r}", every_seconds=1.0)


def agent_restarts(cluster: MachineCluster) -> int:
    containers = cluster.containers(SYSTEM_NAMESPACE, _AGENTS)
    return sum(restarts for _, restarts in containers.values())


def kill_agent(cluster: MachineCluster) -> None:
    """Its process ends as by the kernel's want of memory; the kubelet starts it again."""
    cluster.machine.run("kill -9 $(pgrep -f 'nodedevice_agent run|nodedevice-agent run' | head -1)")


def opened(cluster: MachineCluster, pod: str, *checks: str) -> Json:
    """What a process in the pod can open now, by arguments of the checker; waits until one can be started there."""
    found: Json = {}

    def is_answered() -> bool:
        with suppress(CommandError):
            found.update(json.loads(cluster.control_plane.kubectl("exec", pod, "--", "/bin/checker", *checks)))
        return bool(found)

    cluster.wait(is_answered, f"a process starts in pod {pod}", every_seconds=1.0)
    return {path: (ways["read"] == "ok", ways["write"] == "ok") for path, ways in found["opened"].items()}
