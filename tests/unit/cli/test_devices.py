"""A line per device, and the other way round: what each state is called."""

import json
import re
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from kubectl_nodedevice import device_state
from kubectl_nodedevice.cluster import NodeDevice
from kubectl_nodedevice.page import views
from kubectl_nodedevice.records import record_of
from kubectl_nodedevice.session import Session

from tests.unit.cli.api_server import PODS, FakeApiServer, status
from tests.unit.cli.conftest import Run
from tests.unit.cli.objects import NODE_DEVICES, POD_DEVICES, allocation, device, node_device, pod_device

_NOW: Final = datetime(2026, 11, 28, 10, 12, 0, tzinfo=UTC)
_PARTS: Final = {"total": 79, "healthy": 79, "allocated": 68, "available": 11}
_XID: Final[dict[str, Any]] = {"health": "Unhealthy", "reason": "Xid79", "message": "Xid 79; it has fallen off the bus"}
_GONE: Final = {"state": "Gone", "since": "2026-11-28T10:11:00Z"}
_TAINT: Final = {"key": "k", "value": "v", "effect": "NoSchedule"}
_BY_ALICE: Final = {"id": "d", "by": "alice", "reason": "ecc"}
_PART: Final = {"id": "d::3"}
_LOST: Final = device("d", presence="Missing")
_BROKEN: Final = "unhealthy (12 min): Xid 79"


def _state(device: dict[str, Any], *, cordons: list[dict[str, str]] | None = None, **status: Any) -> device_state.State:
    written = node_device("n", devices=[device], **status)
    written["spec"]["cordonedDevices"] = cordons or []
    found = record_of(NodeDevice, written)
    return device_state.state_of(found, found.devices[0], device_state.holders_of(found).get("d", ()), _NOW)


_SPLIT: Final = device("d", parts=_PARTS)
_HELD: Final[dict[str, Any]] = {"allocations": [allocation("p", ("d",))], "allocated": 1}
_IN_PART: Final = allocation("p", (), parts=[{"parent": "d", "parts": 68, "numbers": "0-67"}])
_HELD_PARTS: Final[dict[str, Any]] = {"allocations": [_IN_PART]}


def _administered(*shares: dict[str, Any]) -> dict[str, Any]:
    return {"allocations": [allocation("p", ("d",), claim={"name": "c", "devices": list(shares)})]}


@pytest.mark.parametrize(
    ("state", "codes", "text"),
    [
        (_state(device("d")), ("Free",), "free"),
        (_state(device("d"), **_HELD), ("Held",), "in use"),
        (_state(device("d", **_XID)), ("Broken",), _BROKEN),
        (_state(device("d", **_XID), **_HELD), ("Broken", "Held"), f"{_BROKEN}; in use"),
        (_state(device("d"), cordons=[_BY_ALICE]), ("Cordoned",), "cordoned by alice: ecc"),
        (_state(device("d"), cordons=[_BY_ALICE], **_HELD), ("Cordoned", "Held"), "cordoned by alice: ecc; in use"),
        (_state(device("d"), cordons=[_PART]), ("Free",), "free"),
        (_state(device("d"), rememberedCordons=[_BY_ALICE]), ("Cordoned",), "cordoned by alice: ecc"),
        (_state(_SPLIT), ("PartlyFree",), "11 of 79 free"),
        (_state(device("d", parts={**_PARTS, "available": 0}), **_HELD_PARTS), ("Held",), "0 of 79 free"),
        (_state(_SPLIT | _XID, **_HELD_PARTS), ("Broken", "PartlyFree"), f"{_BROKEN}; 11 of 79 free"),
        (_state(_SPLIT, cordons=[_PART]), ("Cordoned", "PartlyFree"), "cordoned part d::3; 11 of 79 free"),
        (_state(_LOST, **_HELD), ("Missing", "Held"), "missing (12 min): its plugin no longer lists it; in use"),
        (_state(_LOST, agent={"servedBy": "dra"}), ("Missing",), "missing (12 min): its driver no longer lists it"),
        (_state(device("d", "Unhealthy"), endpoint=_GONE), ("NoPlugin",), "no device plugin (1 min)"),
        (_state(device("d", **_XID), endpoint=_GONE), ("Broken",), _BROKEN),
        (_state(device("d", "")), ("Unknown",), "unknown"),
        (_state(device("d", taints=[_TAINT])), ("Tainted",), "tainted NoSchedule: k=v"),
        # an effect of None keeps no pod off
        (_state(device("d", taints=[{"key": "k", "effect": "None"}])), ("Tainted", "Free"), "tainted None: k; free"),
        # ... nor does a pod that has it for administration
        (_state(device("d"), **_administered({"id": "d", "adminAccess": True})), ("Free",), "free"),
        (_state(device("d"), **_administered({"id": "d", "adminAccess": True}, {"id": "d"})), ("Held",), "in use"),
        # ... nor does a cordon of what others give out
        (_state(device("d"), cordons=[_BY_ALICE], agent={"servedBy": "dra"}), ("Free",), "free"),
        (_state(device("d"), allocations=[allocation("p", ("d",), releasing=True)]), ("Releasing",), "releasing"),
    ],
)
def test_a_state(state: device_state.State, codes: tuple[str, ...], text: str) -> None:
    assert (state.codes, state.text) == (codes, text)


def test_who_has_it_for_administration_is_shown_beside_who_holds_it(run: Run, server: FakeApiServer) -> None:
    of_all = {"name": "all", "devices": [{"id": each, "adminAccess": True} for each in ("gpu-0", "gpu-1")]}
    server.objects[NODE_DEVICES][1]["status"]["allocations"] = [
        allocation("monitor", ("gpu-0", "gpu-1"), claim=of_all),
        allocation("job", ("gpu-1",)),
    ]
    first, second = run("devices", "--node", "node-b").out.splitlines()[1:3]
    assert re.search(r"\bfree\b.* default/monitor [(]admin access[)]", first)
    assert re.search(r"\bin use\b.* default/monitor [(]admin access[)], default/job", second)
    items = json.loads(run("devices", "--node", "node-b", "-o", "json").out)["items"]
    assert [[(h["pod"], h["adminAccess"]) for h in each["holders"]] for each in items] == [
        [("monitor", True)],
        [("monitor", True), ("job", False)],
    ]


@pytest.mark.parametrize(
    ("state", "words", "code"), [("Running", "free", "Free"), ("", "free", "Free"), ("Gone", "not listed", "Unknown")]
)
def test_those_that_are_left_out_are_counted(
    run: Run, server: FakeApiServer, state: str, words: str, code: str
) -> None:
    server.objects[NODE_DEVICES][1]["status"] |= {"devicesOmitted": 1044, "endpoint": {"state": state}}
    assert f"(1,044 more)  {words}" in run("devices", "--node", "node-b").out
    assert json.loads(run("devices", "--node", "node-b", "-o", "json").out)["items"][-1]["states"] == [code]


@pytest.mark.parametrize("pod", ["try", "late"])
def test_a_pod_of_another_namespace_is_another(run: Run, pod: str) -> None:
    ran = run("holders", pod, "-n", "other")
    assert (ran.status, ran.err) == (2, f"error: pod other/{pod} does not exist; correct the name, or the namespace\n")


def _hold_more(server: FakeApiServer) -> None:
    """Others of the namespace and of another one, in part, and what is not listed; in no order."""
    split = [device("s0", parts=_PARTS, numaNodes=[0, 1]), device("s1", "Unhealthy", parts=_PARTS)]
    of_part = {"parts": [{"parent": "s0", "parts": 1, "numbers": "0"}]}
    held: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
        ("zoo", "b", {}, {"id": "s1", "health": "Unhealthy"}),
        ("default", "zoo", {}, {"id": "gone"}),
        ("default", "part", of_part, {"id": "s0", "health": "Healthy", "numaNodes": [0, 1], "parts": 1, "of": 79}),
        ("another", "try", {}, {"id": "s1", "health": "Unhealthy"}),
    ]
    found = node_device("node-c", devices=split)
    found["status"]["allocations"] = [
        {**allocation(name, () if more else (of["id"],), **more), "namespace": namespace}
        for namespace, name, more, of in held
    ]
    server.objects[NODE_DEVICES].append(found)
    for namespace, name, _, of in held:
        made = pod_device(name, "node-c")
        made["metadata"]["namespace"] = namespace
        made["status"]["containers"][0]["resources"][0]["devices"] = [of]
        server.objects[POD_DEVICES].append(made)


@pytest.mark.parametrize("arguments", [["try"], ["-A"], [], ["-n", "another"], ["part"]])
def test_whoever_sees_one_of_both_kinds_sees_holders(run: Run, server: FakeApiServer, arguments: list[str]) -> None:
    _hold_more(server)
    usual = run("holders", *arguments, "-o", "json").out
    names = [(each["namespace"], each["pod"]) for each in json.loads(usual)["items"]]
    assert names == sorted(names) != []
    server.fault = lambda request: status(403, "no") if "/nodedevices" in request.path else None
    assert run("holders", *arguments, "-o", "json").out == usual
    server.fault = lambda request: status(403, "no") if "/poddevices" in request.path else None
    assert json.loads(run("holders", *arguments, "-o", "json").out) == json.loads(usual)


def test_of_claims_whoever_sees_node_devices_alone_sees_each_share(run: Run, server: FakeApiServer) -> None:
    shares = [{"id": "gpu-0", "shareID": "s1"}, {"id": "gpu-0", "shareID": "s0"}]
    server.objects[NODE_DEVICES][1]["status"]["allocations"] = [
        allocation("job", ("gpu-0", "gpu-1"), claim={"name": "c", "devices": shares}),
        # which has no PodDevice
        allocation("ended", ("gpu-1",), releasing=True),
    ]
    server.fault = lambda request: status(403, "no") if "/poddevices" in request.path else None
    items = json.loads(run("holders", "-A", "-o", "json").out)["items"]
    found = [(each["pod"], each["id"], each["claim"], each["shareID"]) for each in items if each["node"] == "node-b"]
    assert found == [("job", "gpu-0", "c", "s1"), ("job", "gpu-0", "c", "s0"), ("job", "gpu-1", "c", "")]


@pytest.mark.parametrize("forbidden", ["/poddevices", "nothing"])
def test_devices_of_an_earlier_pod_with_that_name_are_left_out(run: Run, server: FakeApiServer, forbidden: str) -> None:
    server.objects[PODS][0]["metadata"]["uid"] = "uid-of-the-next"
    server.fault = lambda request: status(403, "no") if forbidden in request.path else None
    ran = run("holders", "try")
    assert (ran.out, "an earlier pod default/try" in ran.err) == ("default/try holds no devices.\n", True)
    with closing(Session()) as session:
        assert views.of_pod(session, {"namespace": "default", "name": "try"})["devices"] == []
