"""The roles for people, with real tokens: what each may see and do, and that the cordon role reaches cordons alone."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from nodedevice_api.names import AGENT_FIELD_MANAGER, AGENTS_NAMESPACE, API_VERSION, GROUP, node_device_name

from tests.chart.rendering import render
from tests.chart.test_chart_rights import Right, each_verb, forbidden, is_forbidden, rights
from tests.cluster.api import ApiError, Client, NodeDevice, Object, PatchType, ServiceAccount, open_client
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import apply_status, free, node_device

pytestmark = pytest.mark.cluster

NODE = "peoples-node"
NAME = node_device_name(NODE, "example.com/gpu")
READ = ("get", "list", "watch")
CRDS = str([f"{kind}.{GROUP}" for kind in ("nodedevices", "poddevices", "nodedeviceconfigs")])

POD_DEVICES = each_verb(GROUP, "poddevices", *READ)
FLEET = {
    *POD_DEVICES,
    *each_verb(GROUP, "nodedevices", *READ),
    *each_verb(GROUP, "nodedeviceconfigs", *READ),
    *each_verb("", "nodes", *READ),
    *each_verb("resource.k8s.io", "resourceslices", *READ),
    *each_verb("resource.k8s.io", "deviceclasses", *READ),
    *each_verb("apiextensions.k8s.io", f"customresourcedefinitions {CRDS}", "get"),
    *each_verb("rbac.authorization.k8s.io", "clusterrolebindings ['nodedevice-agent']", "get"),
}
FLEET_LEASES = each_verb("coordination.k8s.io", "leases", *READ)
FLEET_PROGRAMS = {
    *each_verb("apps", "daemonsets ['nodedevice-agent']", "get"),
    *each_verb("coordination.k8s.io", "leases ['nodedevice-operator']", "get"),
    *each_verb("", "pods", "get", "list"),
    *each_verb("apps", "deployments", "list"),
    *each_verb("", "events", "list"),
}
CORDON = each_verb(GROUP, "nodedevices", *READ, "patch")


class People:
    """Accounts of one namespace with roles bound to them."""

    def __init__(self, installed: ControlPlane, namespace: str, folder: Path, clients: ExitStack) -> None:
        self._installed, self.namespace, self._folder, self._clients = installed, namespace, folder, clients

    def with_roles(self, name: str, *bindings: str) -> Client:
        """bindings: as kubectl creates them: KIND ROLE [NAMESPACE]."""
        if name != "nobody":
            self._installed.client.create(ServiceAccount(metadata=Object(name=name, namespace=self.namespace)))
        else:
            name = "default"
        account = f"--serviceaccount={self.namespace}:{name}"
        for number, binding in enumerate(bindings):
            kind, role, *where = binding.split()
            place = [f"--namespace={where[0]}"] if where else []
            made = f"{self.namespace}-{name}-{number}"
            command = "rolebinding" if where else "clusterrolebinding"
            self._installed.kubectl("create", command, made, f"--{kind}={role}", account, *place)
            self._clients.callback(
                self._installed.kubectl, "delete", command, made, "--ignore-not-found", "--wait=false", *place
            )
        path = self._installed.service_account_kubeconfig(self.namespace, name, self._folder / name)
        return self._clients.enter_context(open_client(path))


@pytest.fixture
def people(installed: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[People]:
    with ExitStack() as clients:
        yield People(installed, namespace, tmp_path, clients)


@pytest.fixture
def published(installed: ControlPlane) -> Iterator[str]:
    installed.add_node(NODE, wait_ready=False)
    installed.client.apply(node_device(NAME, nodeName=NODE), field_manager=AGENT_FIELD_MANAGER)
    apply_status(installed.client, NAME, free("gpu-0"))
    yield NAME
    installed.client.delete(NodeDevice, NAME)
    installed.remove_node(NODE)


def granted(people: People, client: Client, nobody: Client, where: str, expected: set[Right]) -> None:
    """Rights beside those of everybody. An aggregated role and a binding are in force a moment later."""
    wait_until(lambda: expected <= rights(client, where) - rights(nobody, where), f"the role is in force in {where}")
    assert rights(client, where) - rights(nobody, where) == expected


def test_the_fleet_view(people: People) -> None:
    nobody = people.with_roles("nobody")
    viewer = people.with_roles(
        "viewer",
        "clusterrole nodedevice-fleet-view",
        f"role nodedevice-fleet-view {AGENTS_NAMESPACE}",
        f"role nodedevice-fleet-view {SYSTEM_NAMESPACE}",
    )
    granted(people, viewer, nobody, people.namespace, FLEET)
    granted(people, viewer, nobody, AGENTS_NAMESPACE, FLEET | FLEET_LEASES)
    granted(people, viewer, nobody, SYSTEM_NAMESPACE, FLEET | FLEET_PROGRAMS)


def test_the_cordon_role(people: People) -> None:
    nobody = people.with_roles("nobody")
    cordons = people.with_roles("cordons", "clusterrole nodedevice-cordon")
    granted(people, cordons, nobody, people.namespace, CORDON)


def cordon(client: Client, name: str, patch: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = client.patch(NodeDevice, name, patch, patch_type=PatchType.MERGE, field_manager="people")
    return found


DEEP: dict[str, Any] = {"f:spec": {"f:a": {"f:b": {"f:c": {"f:d": {"f:e": {}}}}}}}
ENTRY = {"manager": "x", "operation": "Update", "apiVersion": API_VERSION, "fieldsType": "FieldsV1", "fieldsV1": DEEP}
OF_STATUS = {**ENTRY, "subresource": "status", "fieldsV1": {"f:status": {"f:waitingPods": {}}}}
NOT_CORDONS: dict[str, dict[str, Any]] = {
    "labels": {"metadata": {"labels": {"a": "b"}}},
    "annotations": {"metadata": {"annotations": {"a": "b"}}},
    "finalizers": {"metadata": {"finalizers": ["example.com/a"]}},
    "owners": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "b"}]}},
    "generateName": {"metadata": {"generateName": "a"}},
    "no managedFields": {"metadata": {"managedFields": [{}]}},
    "fields of status": {"metadata": {"managedFields": [OF_STATUS]}},
    "deep managedFields": {"metadata": {"managedFields": [ENTRY]}, "spec": {"cordonedDevices": [{"id": "gpu-1"}]}},
}


@pytest.fixture
def cordoner(people: People, published: str) -> Client:
    """A person with that role and no other, once role and policy are in force."""
    client = people.with_roles("cordons", "clusterrole nodedevice-cordon")
    nothing: dict[str, Any] = {"spec": {"cordonedDevices": []}}
    wait_until(lambda: not is_forbidden(lambda: cordon(client, published, nothing)), "the binding is in force")
    wait_until(lambda: is_forbidden(lambda: cordon(client, published, NOT_CORDONS["labels"])), "the policy is in force")
    return client


def test_the_cordon_role_reaches_cordons_alone(installed: ControlPlane, cordoner: Client, published: str) -> None:
    client = cordoner
    alices = {"spec": {"cordonedDevices": [{"id": "gpu-0", "reason": "ecc", "by": "alice"}]}}
    cordon(client, published, alices)
    for name, patch in NOT_CORDONS.items():
        with pytest.raises(ApiError) as refused:
            cordon(client, published, patch)
        assert "role nodedevice-cordon" in str(refused.value.status.message), name
        # who may delete it is not held to that
        installed.client.patch(NodeDevice, published, patch, patch_type=PatchType.MERGE, dry_run=True)
    total: dict[str, Any] = {"status": {"total": 9}}
    forbidden(lambda: client.patch(NodeDevice.Status, published, total, patch_type=PatchType.MERGE))
    forbidden(lambda: client.delete(NodeDevice, published))
    forbidden(lambda: client.apply(node_device("another", nodeName=NODE), field_manager="x"))
    # another person's, and back again
    two = {"spec": {"cordonedDevices": [*alices["spec"]["cordonedDevices"], {"id": "gpu-1", "by": "bob"}]}}
    assert len(cordon(client, published, two)["spec"]["cordonedDevices"]) == 2
    assert cordon(client, published, {"spec": {"cordonedDevices": []}})["spec"].get("cordonedDevices") in ([], None)


def applied(client: Client, manager: str, *cordons: dict[str, Any]) -> Any:
    body = node_device(NAME, nodeName=NODE, cordonedDevices=[*cordons])
    return client.apply(body, field_manager=manager, force=True)


def owners(client: Client, device_id: str) -> set[str]:
    """The field managers of that cordon."""
    key = "k:" + json.dumps({"id": device_id}, separators=(",", ":"))
    fields = managed_fields(client)
    return {
        each["manager"] for each in fields if key in each["fieldsV1"].get("f:spec", {}).get("f:cordonedDevices", {})
    }


def managed_fields(client: Client) -> list[dict[str, Any]]:
    stored: Any = client.get(NodeDevice, NAME)
    found: list[dict[str, Any]] = stored.to_dict()["metadata"]["managedFields"]
    return found


def test_no_request_takes_away_whose_a_cordon_is(installed: ControlPlane, cordoner: Client) -> None:
    applied(cordoner, "gitops", {"id": "gpu-0", "reason": "ecc"}, {"id": 'odd "\\ <id>'})
    stored = managed_fields(installed.client)
    others = [entry for entry in stored if entry["manager"] != "gitops"]
    status = [entry for entry in stored if entry.get("subresource") != "status"]
    for left in (others, status, others[:1]):
        for also in ({}, {"spec": {"cordonedDevices": [{"id": "gpu-0", "reason": "ecc"}, {"id": "gpu-1"}]}}):
            with pytest.raises(ApiError, match=r"takes no entry out of metadata\.managedFields"):
                cordon(cordoner, NAME, {"metadata": {"managedFields": left}, **also})
    assert owners(installed.client, "gpu-0") == {"gitops"}
    with pytest.raises(ApiError, match="does not write as nodedevice-agent"):
        applied(cordoner, "nodedevice-agent", {"id": "gpu-0"})


def test_whoever_has_the_role_lifts_any_cordon_in_every_way(installed: ControlPlane, cordoner: Client) -> None:
    odd = {"id": 'odd "\\ <id>&'}
    for number in range(12):
        body = {"spec": {"cordonedDevices": [{"id": "gpu-0", "by": f"person {number}"}, odd]}}
        cordoner.patch(NodeDevice, NAME, body, patch_type=PatchType.MERGE, field_manager=f"client-{number}")
    applied(cordoner, "gitops", {"id": "gpu-1", "reason": "a"}, odd)
    applied(cordoner, "other", {"id": "gpu-1", "reason": "a"}, {"id": "gpu-2"})
    assert owners(installed.client, "gpu-1") == {"gitops", "other"}
    # one that is no longer its own stays the other's; one of them alone goes
    applied(cordoner, "gitops", odd)
    assert owners(installed.client, "gpu-1") == {"other"}
    cordon(cordoner, NAME, {"spec": {"cordonedDevices": [{"id": "gpu-2"}]}})
    cordon(cordoner, NAME, {"spec": {"cordonedDevices": []}})
    assert owners(installed.client, "gpu-2") == set()


def test_cordons_leave_room_for_the_agents_status(installed: ControlPlane, cordoner: Client) -> None:
    """However many there are, and however many clients own them."""
    many = [{"id": f"none-{number}", "reason": "x" * 1000} for number in range(1485)]
    with pytest.raises(ApiError, match="at most 128 KiB"):
        cordon(cordoner, NAME, {"spec": {"cordonedDevices": many}})
    small = [{"id": f"none-{number}"} for number in range(1700)]
    applied(cordoner, "client-0", *small)
    with pytest.raises(ApiError, match="more than 256 KiB about cordons"):
        applied(cordoner, "client-1", *small)
    status = free(*(f"gpu-{number:0>120}" for number in range(1000, 2024)))
    apply_status(installed.client, NAME, status)
    assert installed.client.get(NodeDevice, NAME)["status"]["healthy"] == 1024
    cordon(cordoner, NAME, {"spec": {"cordonedDevices": []}})


def test_nothing_is_bound() -> None:
    bound = {each["roleRef"]["name"] for each in render({}) if each["kind"].endswith("RoleBinding")}
    assert bound
    assert not bound & {"nodedevice-view", "nodedevice-fleet-view", "nodedevice-cordon"}
