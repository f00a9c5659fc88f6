"""What commands print, whole: on a cluster with a bit of everything, at a fixed time. `GOLDEN=write make unit` writes the files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.unit import golden
from tests.unit.cli.api_server import CRDS, DAEMON_SETS, LEASES, OURS, PODS, Answer, FakeApiServer, Request, status
from tests.unit.cli.conftest import Run, Terminal
from tests.unit.cli.objects import (
    GPU,
    THEN,
    allocation,
    condition,
    device,
    labels_of,
    node_device,
    pod,
    pod_device,
    small_cluster,
)

FOLDER: Final = Path(__file__).with_name("printed")
NOW, LATE = "2026-11-28T12:34:56Z", "2026-11-28T11:00:00Z"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
# by name of the file, what is typed
CASES: Final = {
    "overview": (),
    "overview-wide": ("-o", "wide"),
    "overview-json": ("-o", "json"),
    "devices": ("devices",),
    "devices-wide": ("devices", "-o", "wide"),
    "devices-json": ("devices", "-o", "json"),
    "devices-of-a-node": ("devices", "--node", "node-c"),
    "holders": ("holders", "-A"),
    "holders-wide": ("holders", "-A", "-o", "wide"),
    "holders-yaml": ("holders", "-A", "-o", "yaml"),
    "holders-of-a-pod": ("holders", "train", "-o", "json"),
    "check": ("check", "--wait-seconds", "0"),
    "check-json": ("check", "--wait-seconds", "0", "-o", "json"),
    "explain": ("config", "explain", "spec.plugins.generic"),
    "explain-a-field": ("config", "explain", "--agent", "delivery", "-o", "json"),
    "explain-all": ("config", "explain"),
    "cordon": ("cordon", "node-b", "--device", "gpu-0", "--reason", "fan", "--wait", "0"),
    "cordon-another": ("cordon", "node-a", "--device", "gpu-1", "--device", "gpu-0", "--reason", "fan", "--wait", "0"),
    "cordon-all-devices": ("cordon", "node-b", "--device", "*", "--reason", "fan", "--wait", "0"),
    "cordon-json": ("cordon", "node-b", "--device", "*", "--reason", "fan", "--wait", "0", "-o", "json"),
    "cordon-all-nodes": ("cordon", "--resource", GPU, "--all-nodes", "--yes", "--reason", "fan"),
    "cordon-all-nodes-json": ("cordon", "--resource", GPU, "--all-nodes", "--yes", "--reason", "fan", "-o", "json"),
    "uncordon": ("uncordon", "node-a", "--device", "gpu-1", "--take-over", "--wait", "0"),
    "uncordon-free": ("uncordon", "node-b", "--device", "gpu-0", "--wait", "0"),
    "uncordon-all-nodes": ("uncordon", "--resource", GPU, "--all-nodes", "--yes"),
    "help": ("--help",),
    "help-devices": ("devices", "--help"),
    "help-holders": ("holders", "--help"),
    "help-check": ("check", "--help"),
    "help-cordon": ("cordon", "--help"),
    "help-uncordon": ("uncordon", "--help"),
    "help-explain": ("config", "explain", "--help"),
    "help-validate": ("config", "validate", "--help"),
    "help-why": ("why", "pod", "--help"),
    "help-discover": ("discover", "--help"),
    "help-completion": ("completion", "--help"),
    "bad-option": ("devices", "--nodes", "x"),
    "bad-form": ("-o", "xml"),
    "bad-pod": ("holders", "try", "-A"),
    "no-such-node": ("devices", "--node", "x"),
    "no-such-field": ("config", "explain", "spec.plugins.x"),
    "no-such-pod": ("why", "pod", "x"),
    "no-reason": ("cordon", "node-a", "--device", "gpu-0", "--reason", " "),
    "no-devices": ("cordon", "node-a", "--reason", "fan"),
    "not-sure": ("uncordon", "--resource", GPU, "--all-nodes"),
    "of-a-driver": ("cordon", "node-e", "--device", "g0", "--reason", "fan"),
    # on a cluster that has nothing yet
    "empty-overview": (),
    "empty-devices": ("devices",),
    "empty-devices-json": ("devices", "-o", "json"),
    "empty-holders": ("holders", "-A"),
    "empty-holders-of-a-namespace": ("holders", "-n", "team"),
    "empty-check": ("check", "--wait-seconds", "0"),
    "empty-cordon": ("cordon", "--resource", GPU, "--all-nodes", "--yes", "--reason", "fan"),
    # for somebody who may see nothing
    "forbidden-overview": (),
    "forbidden-overview-json": ("-o", "json"),
    "forbidden-devices": ("devices",),
    "forbidden-holders": ("holders", "-A"),
    "forbidden-check": ("check", "--wait-seconds", "0"),
    # for somebody who may see pods and their devices, and no NodeDevice
    "own-overview": (),
    "own-overview-json": ("-o", "json"),
    "own-check": ("check", "--wait-seconds", "0"),
    # times that are not known, other attributes, silent agents and plugins that are gone, in no order
    "odd-devices": ("devices", "-o", "wide"),
    "odd-holders": ("holders", "-A"),
    "odd-overview": (),
    # with colours
    "terminal-overview": (),
    "terminal-devices": ("devices", "-o", "wide"),
    "terminal-holders": ("holders", "-A", "-o", "wide"),
    "terminal-check": ("check", "--wait-seconds", "0"),
    "terminal-explain": ("config", "explain", "spec.plugins.generic"),
    "terminal-own-overview": (),
    "terminal-empty-overview": (),
}


def cluster() -> dict[str, list[dict[str, Any]]]:
    """The small one, with a silent agent, parts, claims, what is waited for, offered twice, refused and not shown."""
    found = small_cluster(NOW)
    parts = {"total": 4, "healthy": 4, "allocated": 1, "available": 3}
    split = device("s0", parts=parts, numaNodes=[0, 1], attributes={"model": "A100", "uuid": "GPU-1"})
    claim = {"name": "c", "devices": [{"id": "g0", "shareID": "s", "extendedResource": "x.com/y"}]}
    waiting = {"namespace": "default", "name": "next", "podUID": "uid-next", "container": "main", "since": THEN}
    waiting |= {"reason": "NoFit", "message": "no device has two parts free"}
    in_part = allocation("part", (), parts=[{"parent": "s0", "parts": 1, "numbers": "0"}])
    unready = condition("Ready", "False", "AgentSilent", "no heartbeat")
    silent = [unready, condition("AgentReady", "False", "AgentSilent")]
    twice = [condition("Ready"), condition("AgentReady"), condition("OfferedTwice", message="two sources offer g0")]
    found[f"{OURS}/nodedevices"] += [
        node_device("node-c", "example.com/part", [split], allocations=[in_part], waiting=[waiting], waitingPods=1),
        node_device("node-d", conditions=silent, devicesOmitted=1200),
        node_device(
            "node-e",
            "gpu.example.com/devices",
            [device("g0", taints=[{"key": "k", "value": "v", "effect": "NoSchedule", "timeAdded": THEN}])],
            agent={"version": "0.1.0", "delivery": "kubelet", "servedBy": "dra"},
            driver="gpu.example.com",
            pool="node-e",
            conditions=twice,
            allocations=[allocation("train", ("g0",), claim=claim), allocation("old", ("g1",), notInjected=True)],
        ),
    ]
    held = {"id": "s0", "health": "Unhealthy", "numaNodes": [0, 1], "parts": 1, "of": 4, "claim": "c", "shareID": "s"}
    train = pod_device("train", "node-e")
    of_driver = {"resourceName": "x", "driver": "d", "pool": "p", "devices": [held, {"id": "u"}]}
    train["status"]["containers"] = [{"name": "main", "resources": [of_driver]}]
    found[f"{OURS}/poddevices"].append(train)
    refused = {"metadata": {"name": "refused"}, "spec": {"priority": 1}}
    refused["status"] = {"nodes": {"selected": 2, "accepted": 1, "refused": 1}, "conditions": []}
    found[f"{OURS}/nodedeviceconfigs"].append(refused)
    starting = pod("nodedevice-agent-x", "node-d", "Pending", **labels_of("agent"))
    starting["metadata"]["namespace"] = "nodedevice-system"
    starting["status"]["containerStatuses"] = [{"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
    found[PODS].append(starting)
    found[LEASES][2]["spec"]["renewTime"] = LATE
    found[CRDS][1]["metadata"]["annotations"] = {"nodedevice.io/release": "0.0.9"}
    metadata = {"name": "nodedevice-agent", "namespace": "nodedevice-system"}
    found[DAEMON_SETS] = [{"metadata": metadata, "status": {"desiredNumberScheduled": 4}}]
    shared = {"driver": "net.example.com", "devices": [{}, {}]}
    found[SLICES] = [
        {"metadata": {"name": "s"}, "spec": shared},
        {"metadata": {"name": "of-a-node"}, "spec": {**shared, "nodeName": "node-e"}},
    ]
    return found


def odd() -> dict[str, list[dict[str, Any]]]:
    found = small_cluster(NOW)
    everything = {"name": "all", "devices": [{"id": "d0", "adminAccess": True}]}
    devices = [
        device("d0", attributes={"productName": "P", "product": "Q"}),
        device("d1", attributes={"product": "Q"}, cordonedSince="2026-11-28T09:00:00Z"),
        device("d2", cordonedSince="2026-11-28T09:00:00Z"),
    ]
    allocations = [
        allocation("monitor", ("d0",), claim=everything, since=LATE),
        allocation("timeless", ("d1",), since=""),
        allocation("late", ("d2",), since=LATE),
    ]
    cordons = [{"id": each, "by": "bob"} for each in ("d1", "d2")]
    silent = [condition("Ready", "False"), {**condition("AgentReady", "Unknown"), "lastTransitionTime": ""}]
    first = node_device("node-z", "example.com/b", devices, agent={}, conditions=[], allocations=allocations)
    first["spec"]["cordonedDevices"] = cordons
    found[f"{OURS}/nodedevices"] = [
        first,
        node_device("node-z", "example.com/a", [], endpoint={"state": "Gone"}, devicesOmitted=3),
        node_device("node-y", "example.com/a", [], endpoint={}, devicesOmitted=2, conditions=silent),
    ]
    held = [pod_device(name) for name in ("z", "bad", "unknown")]
    for made, health in zip(held, ("Healthy", "Unhealthy", ""), strict=True):
        made["status"]["health"] = health
        made["status"]["containers"][0]["resources"][0]["devices"][0]["health"] = health or "Degraded"
    held[0]["metadata"]["namespace"] = "another"
    del held[2]["metadata"]["creationTimestamp"]
    found[f"{OURS}/poddevices"] = held
    return found


@pytest.fixture(autouse=True)
def _fixed_time(monkeypatch: pytest.MonkeyPatch, server: FakeApiServer, new_process: None) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    server.date = "Sat, 28 Nov 2026 12:34:56 GMT"
    server.objects = cluster()


def _forbidden(request: Request) -> Answer:
    kind = request.path.rpartition("/")[2]
    message = f'x is forbidden: User "u" cannot list resource "{kind}" in API group "g" at the cluster scope'
    return status(403, message)


@pytest.mark.parametrize("name", CASES)
def test_what_is_printed(name: str, run: Run, server: FakeApiServer, at_terminal: Callable[[], Terminal]) -> None:
    words = name.split("-")
    if words[0] == "odd" or words[:2] == ["terminal", "own"]:
        server.objects = odd()
    if "empty" in words:
        server.objects = {kind: [] for kind in server.objects}
    if "forbidden" in words:
        server.fault = _forbidden
    if "own" in words:
        server.fault = lambda request: _forbidden(request) if request.path.endswith("/nodedevices") else None
    out = at_terminal() if words[0] == "terminal" else None
    ran = run(*CASES[name])
    shown = f"{out.getvalue() if out else ran.out}--- {ran.status}\n{ran.err}"
    golden.check(FOLDER, name, shown.replace(server.address.removeprefix("http://"), "server").encode(), "txt")


def test_the_files_are_of_commands() -> None:
    assert golden.names(FOLDER) == CASES.keys()
