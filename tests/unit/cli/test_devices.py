"""A line per device, and the other way round: what each state is called."""

import json
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from kubectl_nodedevice import devices
from kubectl_nodedevice.objects import node_device_of

from tests.unit.cli.api_server import FakeApiServer, status
from tests.unit.cli.conftest import Run
from tests.unit.cli.objects import THEN, allocation, condition, device, node_device

_KIND: Final = "/apis/nodedevice.io/v1alpha1/nodedevices"
_NOW: Final = datetime(2026, 11, 28, 10, 12, 0, tzinfo=UTC)
_PARTS: Final = {"total": 79, "healthy": 79, "allocated": 68, "available": 11}
_XID: Final[dict[str, Any]] = {
    "health": "Unhealthy",
    "reason": "Xid79",
    "message": "Xid 79; the GPU has fallen off the bus: reset it",
}
_BY_ALICE: Final = {"id": "d", "by": "alice", "reason": "ecc"}


def _state(device: dict[str, Any], *, cordons: list[dict[str, str]] | None = None, **status: Any) -> devices.State:
    written = node_device("n", devices=[device], **status)
    written["spec"]["cordonedDevices"] = cordons or []
    found = node_device_of(written)
    return devices.state_of(found, found.devices[0], devices.holders_of(found).get("d", ()), _NOW)


_HELD: Final[dict[str, Any]] = {"allocations": [allocation("p", ("d",))], "allocated": 1}
_HELD_PARTS: Final[dict[str, Any]] = {
    "allocations": [{**allocation("p", ()), "parts": [{"parent": "d", "parts": 68, "numbers": "0-67"}]}]
}


def _administered(*shares: dict[str, Any]) -> dict[str, Any]:
    return {"allocations": [allocation("p", ("d",), claim={"name": "c", "devices": list(shares)})]}


@pytest.mark.parametrize(
    ("state", "codes", "text"),
    [
        (_state(device("d")), ("Free",), "free"),
        (_state(device("d"), **_HELD), ("Held",), "held"),
        (_state(device("d", **_XID)), ("Broken",), "broken 12 min: Xid 79"),
        (_state(device("d", **_XID), **_HELD), ("Broken", "Held"), "broken 12 min: Xid 79; held"),
        (_state(device("d"), cordons=[_BY_ALICE]), ("Cordoned",), "cordoned by alice: ecc"),
        (_state(device("d"), cordons=[_BY_ALICE], **_HELD), ("Cordoned", "Held"), "cordoned by alice: ecc; held"),
        (_state(device("d"), cordons=[{"id": "all"}]), ("Cordoned",), "cordoned"),
        (_state(device("d"), rememberedCordons=[_BY_ALICE]), ("Cordoned",), "cordoned by alice: ecc"),
        (_state(device("d", parts=_PARTS)), ("PartlyFree",), "11 of 79 free"),
        (_state(device("d", parts=_PARTS), **_HELD_PARTS), ("PartlyFree",), "11 of 79 free"),
        (_state(device("d", parts={**_PARTS, "available": 0}), **_HELD_PARTS), ("Held",), "0 of 79 free"),
        (
            _state(device("d", parts=_PARTS), cordons=[{"id": "d::3"}]),
            ("Cordoned", "PartlyFree"),
            "cordoned part d::3; 11 of 79 free",
        ),
        (
            _state(device("d", presence="Missing"), **_HELD),
            ("Missing", "Held"),
            "missing 12 min: its plugin no longer lists it; held",
        ),
        (
            _state(device("d", "Unhealthy"), endpoint={"state": "Gone", "since": "2026-11-28T10:11:00Z"}),
            ("NoPlugin",),
            "no device plugin 1 min",
        ),
        (_state(device("d", "Degraded")), ("Unknown",), "Degraded"),
        (
            _state(device("d", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])),
            ("Tainted",),
            "tainted NoSchedule: k=v",
        ),
        # an effect of None keeps no pod off
        (_state(device("d", taints=[{"key": "k", "effect": "None"}])), ("Tainted", "Free"), "tainted None: k; free"),
        # ... nor does a pod that has it for administration
        (_state(device("d"), **_administered({"id": "d", "adminAccess": True})), ("Free",), "free"),
        (_state(device("d"), **_administered({"id": "d", "adminAccess": True}, {"id": "d"})), ("Held",), "held"),
        (_state(device("d"), **_administered({"id": "other", "adminAccess": True})), ("Held",), "held"),
        # ... nor does a cordon of what others give out
        (_state(device("d"), cordons=[_BY_ALICE], agent={"servedBy": "dra"}), ("Free",), "free"),
        (
            _state(device("d", parts=_PARTS), cordons=[{"id": "d::3"}], agent={"servedBy": "kubelet"}),
            ("PartlyFree",),
            "11 of 79 free",
        ),
        (_state(device("d"), allocations=[allocation("p", ("d",), releasing=True)]), ("Releasing",), "releasing"),
    ],
)
def test_a_state(state: devices.State, codes: tuple[str, ...], text: str) -> None:
    assert (state.codes, state.text) == (codes, text)


def test_a_long_reason_is_its_word() -> None:
    assert _state(device("d", "Unhealthy", reason="Xid79", message="x" * 61)).text == "broken 12 min: Xid79"
    assert _state(device("d", "Unhealthy", message="x" * 61)).text == f"broken 12 min: {'x' * 60}…"


def test_who_holds_it(run: Run, server: FakeApiServer) -> None:
    assert "gpu-0   held" in (out := run("devices", "--node", "node-a").out)
    assert "default/try" in out
    assert "node-b" not in out


def test_who_has_it_for_administration_is_shown_beside_who_holds_it(run: Run, server: FakeApiServer) -> None:
    of_all = {"name": "all", "devices": [{"id": "gpu-0", "adminAccess": True}, {"id": "gpu-1", "adminAccess": True}]}
    held = server.objects[_KIND][1]["status"].setdefault("allocations", [])
    held += [allocation("monitor", ("gpu-0", "gpu-1"), claim=of_all), allocation("job", ("gpu-1",))]
    lines = run("devices", "--node", "node-b").out.splitlines()
    assert "free" in lines[1]
    assert "default/monitor (admin access)" in lines[1]
    assert "held" in lines[2]
    assert "default/monitor (admin access), default/job" in lines[2]
    items = json.loads(run("devices", "--node", "node-b", "-o", "json").out)["items"]
    assert [[(h["pod"], h["adminAccess"]) for h in each["holders"]] for each in items] == [
        [("monitor", True)],
        [("monitor", True), ("job", False)],
    ]


def test_those_that_are_left_out_are_counted(run: Run, server: FakeApiServer) -> None:
    server.objects[_KIND][1]["status"] |= {"devicesOmitted": 1044}
    assert "(1,044 more)  free" in run("devices", "--node", "node-b").out


def test_of_a_silent_agent_it_says_as_of_when(run: Run, server: FakeApiServer) -> None:
    server.objects[_KIND][1]["status"]["conditions"] = [condition("AgentReady", "Unknown", "LeaseExpired")]
    assert "ago: node-b, whose agent is silent since." in run("devices").out


def test_names_that_do_not_exist(run: Run) -> None:
    assert run("devices", "--node", "x").err == "error: node x has no NodeDevices; those that have: node-a, node-b\n"
    assert run("devices", "--resource", "x").err == "error: there is no resource x; there is example.com/gpu\n"
    assert "on node node-a" in run("devices", "--node", "node-a", "--resource", "x").err


def test_older_crds_cannot_select(run: Run, server: FakeApiServer) -> None:
    server.has_selectors = False
    assert "node-b" not in run("devices", "--node", "node-a").out


def test_json_has_codes(run: Run) -> None:
    items = json.loads(run("devices", "-o", "json").out)["items"]
    assert [(each["node"], each["id"], each["states"]) for each in items] == [
        ("node-a", "gpu-0", ["Held"]),
        ("node-a", "gpu-1", ["Cordoned"]),
        ("node-a", "gpu-2", ["Broken"]),
        ("node-b", "gpu-0", ["Free"]),
        ("node-b", "gpu-1", ["Free"]),
    ]
    assert items[0]["holders"][0]["pod"] == "try"
    assert items[1]["cordons"] == [{"id": "gpu-1", "by": "bob", "reason": "ecc", "at": THEN}]


def test_holders(run: Run) -> None:
    [header, line] = run("holders", "-A").out.splitlines()
    assert line.split()[:7] == ["default", "try", "main", "node-a", "example.com/gpu", "gpu-0", "Healthy"]
    assert header.split()[-1] == "SINCE"
    assert run("holders", "-n", "empty").out == "No pod of namespace empty holds devices.\n"


def test_a_pod_without_devices(run: Run, server: FakeApiServer) -> None:
    assert run("holders", "late").out == "default/late holds no devices.\n"
    assert run("holders", "none").err.startswith("error: pod default/none does not exist; ")
    assert run("holders", "try", "-A").status == 2


@pytest.mark.parametrize("arguments", [["try"], ["-A"], []])
def test_whoever_sees_node_devices_alone_sees_holders(run: Run, server: FakeApiServer, arguments: list[str]) -> None:
    usual = run("holders", *arguments, "-o", "json").out
    server.fault = lambda request: status(403, "no") if "/poddevices" in request.path else None
    assert json.loads(run("holders", *arguments, "-o", "json").out) == json.loads(usual)


def test_of_claims_whoever_sees_node_devices_alone_sees_each_share(run: Run, server: FakeApiServer) -> None:
    shares = [{"id": "gpu-0", "shareID": "s1"}, {"id": "gpu-0", "shareID": "s0"}]
    server.objects[_KIND][1]["status"]["allocations"] = [
        allocation("job", ("gpu-0", "gpu-1"), claim={"name": "c", "devices": shares}),
        # which has no PodDevice
        allocation("ended", ("gpu-1",), releasing=True),
    ]
    server.fault = lambda request: status(403, "no") if "/poddevices" in request.path else None
    items = json.loads(run("holders", "-A", "-o", "json").out)["items"]
    of_node_b = [
        (each["pod"], each["id"], each["claim"], each["shareID"]) for each in items if each["node"] == "node-b"
    ]
    assert of_node_b == [("job", "gpu-0", "c", "s1"), ("job", "gpu-0", "c", "s0"), ("job", "gpu-1", "c", "")]


def test_whoever_may_not_see_node_devices_sees_holders(run: Run, server: FakeApiServer) -> None:
    server.fault = lambda request: status(403, "no") if "/nodedevices" in request.path else None
    assert "gpu-0" in run("holders", "try").out
