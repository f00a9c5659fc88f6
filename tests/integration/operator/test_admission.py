"""The policies that hold the operator to extended resources in the status of Nodes, and of NodeDevices to remembered cordons and to
the deletion of unused ones: its rights reach further.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from nodedevice_api.names import (
    AGENT_FIELD_MANAGER,
    CORDONS_FIELD_MANAGER,
    OPERATOR_FIELD_MANAGER,
    node_device_name,
)

from tests.cluster.accounts import client_with_token
from tests.cluster.api import Client, Node, NodeDevice, Object, PatchType
from tests.cluster.chart import SYSTEM_NAMESPACE, install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import (
    allocation,
    apply_status,
    denied,
    field_entry,
    free,
    is_refused,
    node_device,
)
from tests.integration.operator_process import delete
from tests.integration.releases import DECLARED_FEATURES, needs

pytestmark = pytest.mark.cluster

NODE = "operator-admission"
GPU = "example.com/gpu"
TAINT = {"key": "nodedevice.io/unhealthy-devices", "effect": "NoSchedule"}
FOREIGN = {"key": "example.com/foreign", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def operator(installed: ControlPlane) -> Iterator[Client]:
    installed.add_node(NODE)
    marks = {"metadata": {"labels": {"team": "a"}, "annotations": {"note": "a"}}, "spec": {"taints": [FOREIGN]}}
    installed.client.patch(Node, NODE, marks, patch_type=PatchType.MERGE)
    installed.client.patch(Node.Status, NODE, {"status": {"runtimeHandlers": [{"name": "runc"}]}})
    with client_with_token(installed, SYSTEM_NAMESPACE, "nodedevice-operator") as client:
        label = {"metadata": {"labels": {"team": "b"}}}
        by: dict[str, Any] = {"patch_type": PatchType.MERGE, "dry_run": True}
        wait_until(lambda: is_refused(lambda: client.patch(Node.Status, NODE, label, **by)), "the policy is in force")
        yield client
    installed.remove_node(NODE)


refused = partial(denied, policy="nodedevice-operator")


def merge(client: Client, kind: Any, content: dict[str, Any]) -> Any:
    by: dict[str, Any] = {"patch_type": PatchType.MERGE, "field_manager": OPERATOR_FIELD_MANAGER}
    return client.patch(kind, NODE, content, **by)


def apply_capacity(client: Client, numbers: dict[str, str]) -> Any:
    status = Object(capacity=numbers, allocatable=numbers)
    body = Node.Status(metadata=Object(name=NODE), status=status)
    return client.apply(body, NODE, field_manager=OPERATOR_FIELD_MANAGER)


def test_extended_resources_come_change_and_go(operator: Client) -> None:
    for numbers in ({GPU: "1"}, {GPU: "2", "example.com/nic": "1"}, {}):
        written = apply_capacity(operator, numbers)
        shown = {name: number for name, number in written.status.capacity.items() if "/" in name}
        assert shown == numbers


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param({"metadata": {"labels": {"team": "b"}}}, "no labels of a Node", id="a label"),
        pytest.param({"metadata": {"labels": None}}, "no labels of a Node", id="all labels"),
        pytest.param({"metadata": {"finalizers": ["example.com/x"]}}, "no annotations, finalizers", id="a finalizer"),
        pytest.param({"status": {"capacity": {"cpu": "1"}}}, "extended resources only", id="cpu"),
        pytest.param({"status": {"capacity": {"pods": None}}}, "extended resources only", id="pods away"),
        pytest.param({"status": {"conditions": []}}, "capacity and allocatable only", id="conditions"),
        *(
            pytest.param({"status": {part: value}}, "capacity and allocatable only", id=part)
            # `config` is not here: the API server itself ignores what is written there
            for part, value in {
                "nodeInfo": {"kernelVersion": "x"},
                "phase": "Terminated",
                "images": [{"names": ["registry.example.com/a:1"], "sizeBytes": 1}],
                "features": {"supplementalGroupsPolicy": True},
                "declaredFeatures": ["A"],
                "runtimeHandlers": [{"name": "x"}],
                "volumesInUse": ["x"],
                "volumesAttached": [{"name": "x", "devicePath": "/dev/x"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
            }.items()
        ),
        pytest.param({"status": {"runtimeHandlers": None}}, "capacity and allocatable only", id="handlers away"),
    ],
)
def test_nothing_else_by_way_of_the_status(
    installed: ControlPlane, operator: Client, content: dict[str, Any], sentence: str
) -> None:
    if "declaredFeatures" in content.get("status", {}):
        needs(installed, DECLARED_FEATURES)
    assert sentence in refused(lambda: merge(operator, Node.Status, content))


@pytest.fixture(scope="module")
def writes_nodes(operator: Client, installed: ControlPlane) -> Iterator[Client]:
    """The operator where the chart lets it write its taint and labels."""
    install_chart(installed, {"nodeTaint": "on", "nodeLabels": "remove"})

    def may_not() -> bool:
        return is_refused(lambda: merge(operator, Node, {"metadata": {"labels": {"nodedevice.io/x": None}}}))

    wait_until(lambda: not may_not(), "the operator may write Nodes")
    yield operator
    install_chart(installed)
    installed.kubectl("get", "validatingadmissionpolicy", "nodedevice-operator")
    wait_until(may_not, "the operator may write no Nodes any more")


entry = partial(field_entry, version="v1")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda fields: [*fields, entry("somebody")], id="somebody"),
        pytest.param(lambda fields: [*fields, entry(OPERATOR_FIELD_MANAGER)], id="own, nested"),
        pytest.param(lambda fields: [*fields, entry("kubelet", subresource="status")], id="for status"),
        pytest.param(
            lambda fields: [{**each, "fieldsV1": {**each["fieldsV1"], **entry("")["fieldsV1"]}} for each in fields],
            id="added to those of others",
        ),
    ],
)
def test_no_managed_fields_of_a_node(writes_nodes: Client, installed: ControlPlane, change: Any) -> None:
    fields = change(installed.client.get(Node, NODE).to_dict()["metadata"]["managedFields"])
    assert "managedFields" in refused(lambda: merge(writes_nodes, Node, {"metadata": {"managedFields": fields}}))


def test_a_label_of_ours_is_taken_over_from_whoever_set_it(writes_nodes: Client, installed: ControlPlane) -> None:
    both = {"metadata": {"labels": {"nodedevice.io/x": "theirs", "example.com/other": "a"}}}
    installed.client.patch(Node, NODE, both, patch_type=PatchType.MERGE, field_manager="somebody")
    written = merge(writes_nodes, Node, {"metadata": {"labels": {"nodedevice.io/x": "ours"}}})
    [theirs] = [each for each in written.to_dict()["metadata"]["managedFields"] if each["manager"] == "somebody"]
    assert "nodedevice.io/x" not in str(theirs)


def test_its_own_taint_and_labels_where_the_chart_allows_them(writes_nodes: Client) -> None:
    merge(writes_nodes, Node, {"spec": {"taints": [FOREIGN, TAINT]}})
    merge(writes_nodes, Node, {"spec": {"taints": [FOREIGN]}})
    merge(writes_nodes, Node, {"metadata": {"labels": {"nodedevice.io/x": "1"}}})
    merge(writes_nodes, Node, {"metadata": {"labels": {"nodedevice.io/x": None}}})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param({"spec": {"taints": []}}, "but the taint nodedevice.io/unhealthy-devices", id="a foreign taint"),
        pytest.param(
            {"spec": {"taints": [FOREIGN, {**TAINT, "effect": "NoExecute"}]}}, "with the effect NoSchedule", id="evicts"
        ),
        pytest.param({"spec": {"unschedulable": True}}, "nothing of a Node's spec but the taint", id="cordon the Node"),
        pytest.param({"metadata": {"labels": {"team": "b"}}}, "that begin with nodedevice.io/", id="a foreign label"),
        pytest.param({"metadata": {"annotations": {"note": "b"}}}, "no annotations", id="an annotation"),
    ],
)
def test_and_nothing_of_others(writes_nodes: Client, content: dict[str, Any], sentence: str) -> None:
    assert sentence in refused(lambda: merge(writes_nodes, Node, content))


def test_labels_never_by_way_of_the_status(writes_nodes: Client) -> None:
    by_status = {"metadata": {"labels": {"nodedevice.io/x": "1"}}}
    assert "no labels of a Node but" in refused(lambda: merge(writes_nodes, Node.Status, by_status))


NAME = node_device_name(NODE, GPU)
FAN = {"id": "gpu-0", "reason": "fan", "by": "bob", "at": "2026-01-01T12:00:00.5+01:00"}
ALICES = {"id": "gpu-1", "reason": "ecc", "by": "alice", "at": "2026-01-01T12:00:00Z"}


@pytest.fixture
def remembered(installed: ControlPlane, operator: Client) -> Iterator[Any]:
    """A NodeDevice with a cordon of alice's, whose agent remembers another; its writes by the operator."""
    admin = installed.client
    admin.apply(node_device(NAME, nodeName=NODE), field_manager=AGENT_FIELD_MANAGER)
    apply_status(admin, NAME, {**free("gpu-0", "gpu-1"), "rememberedCordons": [FAN]})
    apply_cordons(admin, [ALICES], "alice")
    yield lambda *cordons: apply_cordons(operator, list(cordons), CORDONS_FIELD_MANAGER)
    admin.delete(NodeDevice, NAME)


def apply_cordons(client: Client, cordons: list[dict[str, str]], manager: str) -> list[dict[str, str]]:
    """Server-side apply of these alone. Returns what the object has then."""
    body = NodeDevice.from_dict({"metadata": {"name": NAME}, "spec": {"cordonedDevices": cordons}})
    found: Any = client.apply(body, field_manager=manager)
    return sorted(found.spec["cordonedDevices"], key=lambda cordon: str(cordon["id"]))


def test_a_remembered_cordon_is_added_and_kept(remembered: Any) -> None:
    assert remembered(FAN) == [FAN, ALICES]
    assert remembered(FAN) == [FAN, ALICES]


@pytest.mark.parametrize(
    ("patch", "sentence"),
    [
        pytest.param({"spec": {"cordonedDevices": [ALICES, {"id": "gpu-7"}]}}, "adds only cordons that", id="another"),
        pytest.param(
            {"spec": {"cordonedDevices": [ALICES, {**FAN, "reason": "x"}]}}, "adds only cordons that", id="a reason"
        ),
        pytest.param({"spec": {"cordonedDevices": [FAN]}}, "changes and removes no cordon", id="instead of alice's"),
        pytest.param(
            {"spec": {"cordonedDevices": [{**ALICES, "reason": "x"}]}}, "changes and removes no cordon", id="her reason"
        ),
        pytest.param({"metadata": {"annotations": {"a": "b"}}}, "changes no labels, annotations", id="an annotation"),
        pytest.param({"metadata": {"finalizers": ["example.com/x"]}}, "finalizers", id="a finalizer"),
        pytest.param({"metadata": {"labels": {"a": "b"}}}, "changes no labels", id="a label"),
        pytest.param(
            {"metadata": {"managedFields": [{}]}}, "no entry of others in managedFields", id="whose cordons are"
        ),
    ],
)
@pytest.mark.usefixtures("remembered")
def test_and_nothing_else_of_a_node_device(operator: Client, patch: dict[str, Any], sentence: str) -> None:
    def write() -> Any:
        return operator.patch(NodeDevice, NAME, patch, patch_type=PatchType.MERGE, field_manager=CORDONS_FIELD_MANAGER)

    assert sentence in denied(write, "nodedevice-operator-cordons")


def test_many_cordons_cost_the_policy_little(installed: ControlPlane, remembered: Any) -> None:
    notes = {"reason": "x" * 60, "by": "y" * 60, "at": "2026-01-01T12:00:00Z"}
    many = [{"id": f"gpu-{number:04}", **notes} for number in range(2, 602)]
    apply_cordons(installed.client, [ALICES, *many[:500]], "alice")
    apply_status(installed.client, NAME, {**free("gpu-0", "gpu-1"), "rememberedCordons": many})
    assert len(remembered(*many[500:])) == 601


WAITS = {"podUID": "uid-a", "container": "main", "reason": "NotEnoughDevices"}
# the status of a NodeDevice that the operator may delete
UNUSED = {**free("gpu-0"), "available": 0, "endpoint": {"state": "Gone"}}
RUNS, USED, CORDONED = "only when its device plugin is gone", "held or waited for", "with an administrator's cordons"


@pytest.mark.parametrize(
    ("status", "cordons", "sentence"),
    [
        pytest.param(None, [], RUNS, id="no agent has written its status"),
        pytest.param({"endpoint": {"state": "Running"}}, [], RUNS, id="its plugin runs"),
        pytest.param({"endpoint": {"state": "Stopped"}}, [], RUNS, id="its plugin restarts"),
        pytest.param({"allocated": 1}, [], USED, id="a device is allocated"),
        pytest.param({"releasing": 1}, [], USED, id="a device is released"),
        pytest.param({"allocations": [allocation("uid-a", "main", "gpu-0")]}, [], USED, id="a pod holds a device"),
        pytest.param({"allocationsOmitted": 1}, [], USED, id="unlisted allocations"),
        pytest.param({"waiting": [WAITS]}, [], USED, id="a pod waits"),
        pytest.param({"rememberedCordons": [FAN]}, [], CORDONED, id="a remembered cordon"),
        pytest.param({}, [FAN], CORDONED, id="a cordon"),
    ],
)
def test_no_used_node_device_is_deleted(
    installed: ControlPlane, operator: Client, status: dict[str, Any] | None, cordons: list[Any], sentence: str
) -> None:
    admin = installed.client
    try:
        made = node_device(NAME, nodeName=NODE, cordonedDevices=cordons)
        admin.apply(made, field_manager=AGENT_FIELD_MANAGER, force=True)
        if status is not None:
            apply_status(admin, NAME, {**UNUSED, **status})
        assert sentence in denied(lambda: operator.delete(NodeDevice, NAME), "nodedevice-operator-nodedevices")
    finally:
        delete(admin, NodeDevice, NAME)
