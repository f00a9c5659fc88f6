"""What an agent's token can write into managedFields, on a real API server: its own entry as the API server makes it, and no more.

An apply, and a write to a subresource, bring none along: the API server refuses the one, and ignores what the other has. Any other
request may, and what it brought is in the object that the policy sees.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from nodedevice_api.names import AGENT_FIELD_MANAGER, AGENTS_NAMESPACE, CONFIGS_ANNOTATION, node_device_name

from tests.cluster.api import Client, Lease, NodeDevice, PatchType
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.integration.agent.two_agents import NAME, A, body, lease, owner, publishing, refused
from tests.integration.crds.custom_resources import apply_status, field_entry, free
from tests.integration.operator_process import delete

pytestmark = pytest.mark.cluster

Fields = list[dict[str, Any]]
NEW = "example.com/new"
SOMEBODY = "somebody"
# of a patch of the agent's Lease
BY_SOMEBODY: Any = {"namespace": AGENTS_NAMESPACE, "patch_type": PatchType.MERGE, "field_manager": SOMEBODY}
# what is done to the managedFields that the object has
Tampering = Callable[[Fields], Fields]
TAMPERING: dict[str, Tampering] = {
    "adds an entry of somebody": lambda fields: [*fields, field_entry(SOMEBODY, levels=1)],
    "adds a nested entry of somebody": lambda fields: [*fields, field_entry(SOMEBODY)],
    "adds an entry four levels deep": lambda fields: [*fields, field_entry(AGENT_FIELD_MANAGER, levels=3)],
    "adds a nested entry of its own applies": lambda fields: [
        *(each for each in fields if (each["manager"], each.get("subresource")) != (AGENT_FIELD_MANAGER, None)),
        field_entry(AGENT_FIELD_MANAGER, operation="Apply"),
    ],
    "adds an entry of the operator for status": lambda fields: [
        *fields,
        field_entry("nodedevice-operator", operation="Apply", subresource="status"),
    ],
}
# where there are entries of others; of its own Lease an agent may take over what it likes
TAKING: dict[str, Tampering] = {
    "takes the entry of another": lambda fields: [{**each, "manager": AGENT_FIELD_MANAGER} for each in fields],
    "gives its own to another": lambda fields: [{**each, "manager": SOMEBODY} for each in fields],
}
NESTED = field_entry("")["fieldsV1"]
ADDING: dict[str, Tampering] = {
    "adds to the entry of another": lambda fields: [
        each if each["manager"] == AGENT_FIELD_MANAGER else {**each, "fieldsV1": {**each["fieldsV1"], **NESTED}}
        for each in fields
    ],
}


def with_fields(stored: dict[str, Any], tampering: Tampering) -> dict[str, Any]:
    """The object that was read, to be written back."""
    metadata = stored["metadata"]
    return {**stored, "metadata": {**metadata, "managedFields": tampering(metadata["managedFields"])}}


def json_patch(fields: Fields) -> list[dict[str, Any]]:
    return [{"op": "replace", "path": "/metadata/managedFields", "value": fields}]


# -- each kind by each verb -----------------------------------------------------------------------------------------------


class Written:
    """How an agent's token writes an object of its own; nothing is stored."""

    kind: Any
    name: str
    namespaced: dict[str, str]

    def __init__(self, agent: Client, cluster: ControlPlane) -> None:
        self.agent, self.cluster = agent, cluster

    def stored(self) -> dict[str, Any]:
        found: Any = self.cluster.client.get(self.kind, self.name, **self.namespaced)
        return dict(found.to_dict())

    def made(self, fields: Fields) -> Any:
        """A new object with these managedFields."""
        raise NotImplementedError

    def tampered(self, tampering: Tampering, fields: Fields | None = None) -> Fields:
        """managedFields as the tampering leaves them: of the stored object, or these."""
        return tampering(self.stored()["metadata"]["managedFields"] if fields is None else fields)

    def create(self, tampering: Tampering) -> Any:
        return self.agent.create(self.made(self.tampered(tampering, [])), dry_run=True)

    def put(self, tampering: Tampering) -> Any:
        changed: Any = self.kind.from_dict(with_fields(self.stored(), lambda fields: self.tampered(tampering, fields)))
        return self.agent.replace(changed, dry_run=True)

    def merge(self, tampering: Tampering) -> Any:
        return self._patch({"metadata": {"managedFields": self.tampered(tampering)}}, PatchType.MERGE)

    def json(self, tampering: Tampering) -> Any:
        return self._patch(json_patch(self.tampered(tampering)), PatchType.JSON)

    def _patch(self, content: Any, patch_type: PatchType) -> Any:
        how: dict[str, Any] = {**self.namespaced, "patch_type": patch_type, "dry_run": True}
        return self.agent.patch(self.kind, self.name, content, **how)


class NodeDevices(Written):
    kind, name, namespaced = NodeDevice, NAME, {}

    def made(self, fields: Fields) -> Any:
        return body([owner(self.cluster, A)], node_device_name(A, NEW), A, NEW, managedFields=fields)


class Leases(Written):
    kind, name, namespaced = Lease, A, {"namespace": AGENTS_NAMESPACE}

    def made(self, fields: Fields) -> Any:
        content = lease().to_dict()
        content["metadata"]["managedFields"] = fields
        self.cluster.client.delete(Lease, A, namespace=AGENTS_NAMESPACE)
        return Lease.from_dict(content)

    def tampered(self, tampering: Tampering, fields: Fields | None = None) -> Fields:
        return [{**each, "apiVersion": "coordination.k8s.io/v1"} for each in super().tampered(tampering, fields)]


@pytest.fixture(scope="module")
def written(cluster: ControlPlane, agents: dict[str, Client]) -> Iterator[None]:
    """The NodeDevices of both nodes, as their agents and others have written them."""
    with publishing(cluster, agents):
        yield


@pytest.fixture
def own_lease(cluster: ControlPlane, agents: dict[str, Client]) -> Iterator[None]:
    """As its agent has made it, with an annotation of somebody's."""
    agents[A].create(lease(annotations={CONFIGS_ANNOTATION: "{}"}))
    cluster.client.patch(Lease, A, {"metadata": {"annotations": {"note": "a"}}}, **BY_SOMEBODY)
    yield
    delete(cluster.client, Lease, A, AGENTS_NAMESPACE)


KINDS: tuple[type[Written], ...] = (NodeDevices, Leases)
VERBS = ("create", "put", "merge", "json")
ROWS = [
    pytest.param(kind, verb, tampering, id=f"{kind.__name__} {verb} {name}")
    for kind in KINDS
    for verb in VERBS
    for name, tampering in (
        TAMPERING | ({} if verb == "create" else ADDING | (TAKING if kind is NodeDevices else {}))
    ).items()
]


@pytest.mark.usefixtures("written", "own_lease")
@pytest.mark.parametrize(("kind", "verb", "tampering"), ROWS)
def test_what_a_request_brings_is_refused(
    cluster: ControlPlane, agents: dict[str, Client], kind: type[Written], verb: str, tampering: Tampering
) -> None:
    assert "managedFields" in refused(lambda: getattr(kind(agents[A], cluster), verb)(tampering))


@pytest.mark.usefixtures("written", "own_lease")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", KINDS)
def test_as_they_were_read_they_may_be_sent_back(
    cluster: ControlPlane, agents: dict[str, Client], kind: type[Written], verb: str
) -> None:
    """As the agent does with its Lease."""
    getattr(kind(agents[A], cluster), verb)(lambda fields: fields)


# -- as another manager ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("written", "own_lease")
@pytest.mark.parametrize("manager", [SOMEBODY, ""])
def test_it_writes_as_no_other_manager(cluster: ControlPlane, agents: dict[str, Client], manager: str) -> None:
    agent = agents[A]
    own: Any = Lease.from_dict(Leases(agent, cluster).stored())
    by: dict[str, Any] = {"field_manager": manager, "dry_run": True}
    patched: dict[str, Any] = {**by, "patch_type": PatchType.MERGE}
    made = body([owner(cluster, A)], node_device_name(A, NEW), A, NEW)
    stored = NodeDevices(agent, cluster).stored()
    status = {**stored["status"], **free("gpu-0", "gpu-1")}
    changed: Any = NodeDevice.Status.from_dict({**stored, "status": status})
    calls: list[Callable[[], Any]] = [
        lambda: agent.patch(NodeDevice, NAME, {"metadata": {"ownerReferences": [owner(cluster, A)]}}, **patched),
        lambda: agent.patch(NodeDevice.Status, NAME, {"status": status}, **patched),
        lambda: agent.replace(changed, NAME, **by),
        lambda: agent.create(made, **by),
        lambda: agent.replace(own, **by),
    ]
    if manager:
        calls += [
            lambda: agent.apply(made, force=True, **by),
            lambda: apply_status(agent, NAME, status, manager, dry_run=True),
        ]
    for call in calls:
        assert "set fieldManager=nodedevice-agent" in refused(call)


# -- where the API server takes none --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("tampering", [pytest.param(t, id=n) for n, t in (TAMPERING | ADDING | TAKING).items()])
def test_a_write_to_status_brings_none(cluster: ControlPlane, agents: dict[str, Client], tampering: Tampering) -> None:
    before = NodeDevices(agents[A], cluster).stored()
    fields = tampering(before["metadata"]["managedFields"])
    content = {"metadata": {"managedFields": fields}}
    changed: Any = NodeDevice.Status.from_dict(with_fields(before, tampering))
    after = [
        agents[A].patch(NodeDevice.Status, NAME, content, patch_type=PatchType.MERGE, dry_run=True),
        agents[A].patch(NodeDevice.Status, NAME, json_patch(fields), patch_type=PatchType.JSON, dry_run=True),
        agents[A].replace(changed, NAME, dry_run=True),
    ]
    for each in after:
        stored = each.to_dict()
        assert of_others(stored) == of_others(before)
        assert "'f:a'" not in str(stored["metadata"]["managedFields"])


def of_others(stored: dict[str, Any]) -> Fields:
    return [each for each in stored["metadata"]["managedFields"] if each["manager"] != AGENT_FIELD_MANAGER]


# -- what others did to its Lease ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("own_lease")
def test_a_lease_that_somebody_edited_is_renewed(cluster: ControlPlane, agents: dict[str, Client]) -> None:
    """A renewal takes over what it writes: entries of others lose it, and lose only that."""
    edited = {"metadata": {"annotations": {CONFIGS_ANNOTATION: "[]"}}, "spec": {"holderIdentity": "x"}}
    cluster.client.patch(Lease, A, edited, **BY_SOMEBODY)
    found = cluster.client.get(Lease, A, namespace=AGENTS_NAMESPACE)
    found.metadata.annotations = {**(found.metadata.annotations or {}), CONFIGS_ANNOTATION: "{}"}
    found.spec.holderIdentity = A
    renewed = agents[A].replace(found).to_dict()["metadata"]["managedFields"]
    [others] = [each for each in renewed if each["manager"] == SOMEBODY]
    assert others["fieldsV1"] == {"f:metadata": {"f:annotations": {"f:note": {}}}}
