"""How kinds are read: what is asked for, and in which order they come."""

import io
from typing import Any

import pytest
from kubectl_nodedevice.output import Screen
from kubectl_nodedevice.reading import Reader

from tests.unit.cli.api_server import PODS, FakeApiServer
from tests.unit.cli.conftest import ApiOf, Terminal
from tests.unit.cli.objects import GPU, NODE_DEVICES, POD_DEVICES, node_device, pod, pod_device


@pytest.fixture
def reader(api_of: ApiOf) -> Reader:
    return Reader(api_of(), Screen(out=io.StringIO(), err=Terminal()))


def _elsewhere(made: dict[str, Any], namespace: str) -> dict[str, Any]:
    made["metadata"]["namespace"] = namespace
    return made


@pytest.mark.parametrize(
    ("asked", "selector"),
    [
        ({}, None),
        ({"node": "a"}, "spec.nodeName=a"),
        ({"resource": GPU}, f"spec.resourceName={GPU}"),
        ({"node": "a", "resource": GPU}, f"spec.nodeName=a,spec.resourceName={GPU}"),
    ],
)
def test_node_devices_are_selected_by_the_server(
    reader: Reader, server: FakeApiServer, asked: dict[str, str], selector: str | None
) -> None:
    server.objects[NODE_DEVICES] = [node_device(node, of) for node in ("b", "a") for of in (GPU, "example.com/a")]
    found = [(each.node, each.resource) for each in reader.node_devices(**asked)]
    [request] = server.requests
    assert request.query == {"limit": "500", **({"fieldSelector": selector} if selector else {})}
    every = [{"node": node, "resource": resource} for node in ("a", "b") for resource in ("example.com/a", GPU)]
    assert found == [(each["node"], each["resource"]) for each in every if asked.items() <= each.items()]
    # an older CRD cannot, and the same comes
    server.has_selectors = False
    assert [(each.node, each.resource) for each in reader.node_devices(**asked)] == found


def test_pod_devices_are_of_a_namespace(reader: Reader, server: FakeApiServer) -> None:
    server.objects[POD_DEVICES] = [
        _elsewhere(pod_device(name, node), namespace)
        for name, node, namespace in (("b", "n", "y"), ("a", "n", "y"), ("c", "m", "y"), ("z", "n", "x"))
    ]

    def names(*asked: str) -> list[str]:
        return [each.meta.name for each in reader.pod_devices(*asked)]

    assert (names(""), names("y")) == (["z", "a", "b", "c"], ["a", "b", "c"])


def test_pods_that_have_not_started(reader: Reader, server: FakeApiServer) -> None:
    waiting = _elsewhere(pod("waits", phase="Pending"), "team")
    server.objects[PODS] = [pod("runs"), pod("late", phase="Pending"), waiting, _elsewhere(pod("own"), "team")]
    assert [each.meta.name for each in reader.pending_pods()] == ["late", "waits"]
    assert [each.meta.name for each in reader.pending_pods("team")] == ["waits"]
