"""A line per node, with a block for each device; and the filters of `devices`."""

import json
from collections.abc import Sequence

import pytest
from kubectl_nodedevice.attention import Summary
from kubectl_nodedevice.commands.nodes import blocks

from tests.unit.cli.api_server import NODES, FakeApiServer, status
from tests.unit.cli.conftest import Clock, Run
from tests.unit.cli.objects import GPU, NODE_DEVICES, allocation, device, node, node_device


@pytest.fixture
def fleet(server: FakeApiServer) -> FakeApiServer:
    """node-a: one free, one in use; node-b: none free; node-c: another resource, and a label."""
    server.objects[NODE_DEVICES] = [
        node_device("node-b", devices=[device("gpu-0", "Unhealthy", reason="Xid")], available=0),
        node_device("node-a", allocations=[allocation("p")], allocated=1, available=1),
        node_device("node-c", "example.com/nic", [device("nic-0")]),
    ]
    server.objects[NODES] = [node("node-a"), node("node-b"), node("node-c")]
    server.objects[NODES][2]["metadata"]["labels"] = {"zone": "c"}
    return server


def test_nodes_with_free_devices_come_first(fleet: FakeApiServer, run: Run) -> None:
    ran = run("nodes")
    assert ran.status == 0
    assert [" ".join(each.split()) for each in ran.out.splitlines()[1:-1]] == [
        "node-a 1 example.com/gpu ■□ 1/2",
        "node-c 1 example.com/nic □ 1/1",
        "node-b 0 example.com/gpu ✗ 0/1",
    ]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--resource", GPU], ["node-a", "node-b"]),
        (["--selector", "zone=c"], ["node-c"]),
        (["-l", "zone=d"], []),
    ],
)
def test_filters(fleet: FakeApiServer, run: Run, options: Sequence[str], names: list[str]) -> None:
    found = json.loads(run("nodes", *options, "-o", "json").out)
    assert [each["node"] for each in found["items"]] == names


def test_a_selector_that_the_server_refuses(fleet: FakeApiServer, run: Run) -> None:
    fleet.fault = lambda request: status(400, "unable to parse requirement") if request.path == NODES else None
    ran = run("nodes", "-l", "=")
    assert (ran.status, "unable to parse requirement" in ran.err) == (2, True), ran


def test_an_unknown_resource(fleet: FakeApiServer, run: Run) -> None:
    ran = run("nodes", "--resource", "example.com/gpus")
    assert (ran.status, GPU in ran.err) == (2, True), ran


@pytest.mark.parametrize(
    ("total", "healthy", "held", "free", "drawn"),
    [
        (8, 8, 3, 5, "■■■□□□□□"),
        (8, 7, 3, 4, "■■■□□□□✗"),
        (8, 8, 0, 6, "□□□□□□▨▨"),
        (1000, 999, 500, 499, "■■■■■■■■□□□□□□□✗"),
        (0, 0, 0, 0, ""),
        (2, 0, 2, 0, "✗✗"),
    ],
    ids=["free", "unhealthy", "cordoned", "many", "none", "held and unhealthy"],
)
def test_blocks(total: int, healthy: int, held: int, free: int, drawn: str) -> None:
    assert blocks(Summary("", "", "", total, healthy, held, free, 0, "True", "", "True", "nodedevice")) == drawn


def test_watch_prints_a_node_that_changes(fleet: FakeApiServer, run: Run, clock: Clock) -> None:
    def change() -> None:
        if len(clock.slept) == 1:
            fleet.objects[NODE_DEVICES][1]["status"]["available"] = 0
        elif len(clock.slept) == 3:
            del fleet.objects[NODE_DEVICES][2]
        elif len(clock.slept) == 5:
            raise KeyboardInterrupt

    clock.meanwhile = change
    ran = run("nodes", "--watch")
    assert ran.status == 130
    assert ran.out.splitlines()[-2:] == ["node-a  0 free  example.com/gpu ■▨ 0/2", "node-c  has no devices any more"]


def test_watch_goes_on_after_the_api_server_was_away(fleet: FakeApiServer, run: Run, clock: Clock) -> None:
    def change() -> None:
        away = len(clock.slept) < 4
        fleet.fault = lambda request: status(503, "starting") if away and request.path == NODE_DEVICES else None
        if len(clock.slept) == 4:
            fleet.objects[NODE_DEVICES][1]["status"]["available"] = 0
        elif len(clock.slept) == 6:
            raise KeyboardInterrupt

    clock.meanwhile = change
    ran = run("nodes", "--watch")
    assert ran.status == 130
    assert ran.out.splitlines()[-1].startswith("node-a  0 free")
    assert ran.err.count("the watch goes on when that is over") == 1


def test_watch_ends_with_a_right(fleet: FakeApiServer, run: Run, clock: Clock) -> None:
    def change() -> None:
        fleet.fault = lambda request: status(403, "no") if request.path == NODE_DEVICES else None

    clock.meanwhile = change
    assert run("nodes", "--watch").status == 2


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_watch_is_for_people(fleet: FakeApiServer, run: Run, form: str) -> None:
    ran = run("nodes", "--watch", "-o", form)
    assert (ran.status, "--watch" in ran.err, fleet.requests) == (2, True, [])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nodes", "-l", "zone=d"], "no node with the labels zone=d has any"),
        (["devices", "-l", "zone=d"], "no node with the labels zone=d has any"),
        (["nodes", "-l", "zone=d", "--resource", GPU], "no node with the labels zone=d has any"),
        (["devices", "-l", "zone=d", "--resource", GPU], "no node with the labels zone=d has any"),
        (["devices", "--state", "cordoned"], "none is cordoned"),
    ],
)
def test_why_there_is_no_device(fleet: FakeApiServer, run: Run, words: list[str], why: str) -> None:
    assert run(*words).out == f"No devices: {why}.\n"


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (["--state", "free"], [("node-a", "gpu-1"), ("node-c", "nic-0")]),
        (["--state", "in-use"], [("node-a", "gpu-0")]),
        (["--state", "unhealthy"], [("node-b", "gpu-0")]),
        (["--state", "cordoned"], []),
        (["--selector", "zone=c"], [("node-c", "nic-0")]),
        (["--sort-by", "pod", "--resource", GPU], [("node-a", "gpu-0"), ("node-a", "gpu-1"), ("node-b", "gpu-0")]),
        (["--sort-by", "state", "--resource", GPU], [("node-b", "gpu-0"), ("node-a", "gpu-1"), ("node-a", "gpu-0")]),
    ],
    ids=["free", "in use", "unhealthy", "cordoned", "label", "by pod", "by state"],
)
def test_devices_by_state_label_and_order(
    fleet: FakeApiServer, run: Run, options: list[str], ids: list[tuple[str, str]]
) -> None:
    lines = run("devices", *options).out.splitlines()[1:]
    assert [tuple(line.split()[::2][:2]) for line in lines if line.startswith("node-")] == ids
