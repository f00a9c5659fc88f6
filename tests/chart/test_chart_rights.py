"""What the chart's two accounts may do, asked and tried with their own tokens: all they need, and nothing else.

The expected rights are written out here a second time on purpose: a verb more in the chart has to be wanted in two places.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nodedevice_api.names import (
    AGENT_FIELD_MANAGER,
    AGENTS_NAMESPACE,
    GROUP,
    OPERATOR_FIELD_MANAGER,
    OPERATOR_LEASE,
    node_device_name,
)
from nodedevice_api.names import REQUIRED_PLUGINS_ANNOTATION as ANNOTATION

from tests.cluster.api import (
    ApiError,
    Client,
    Lease,
    Node,
    NodeDevice,
    Object,
    PatchType,
    Pod,
    Secret,
    SelfSubjectRulesReview,
    open_client,
)
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import apply_status, free, node_device, pod_device

pytestmark = pytest.mark.cluster

NODE = "rights-node"
NAME = node_device_name(NODE, "example.com/gpu")


Right = tuple[str, str, str]  # group, resource, verb


def each_verb(group: str, resource: str, *verbs: str) -> set[Right]:
    return {(group, resource, verb) for verb in verbs}


AGENT = {
    *each_verb("", "nodes", "get", "list", "watch"),
    *each_verb("", "pods", "list", "watch"),
    *each_verb(GROUP, "nodedeviceconfigs", "list", "watch"),
    *each_verb(GROUP, "nodedevices", "list", "watch", "create", "patch"),
    *each_verb(GROUP, "nodedevices/status", "patch"),
    *each_verb("resource.k8s.io", "resourceslices", "list", "watch"),
    *each_verb("resource.k8s.io", "resourceclaims", "get"),
}
AGENT_LEASES = each_verb("coordination.k8s.io", "leases", "get", "create", "update")
ADMISSION = "admissionregistration.k8s.io"
KINDS = str([f"{kind}.{GROUP}" for kind in ("nodedevices", "poddevices", "nodedeviceconfigs")])
OPERATOR = {
    *each_verb("", "nodes", "get", "list", "watch"),
    *each_verb("", "nodes/status", "patch"),
    *each_verb("", "pods", "get", "list", "patch"),
    *each_verb("", "events", "create", "patch"),
    *each_verb(GROUP, "nodedevices", "get", "list", "watch", "delete", "patch"),
    *each_verb(GROUP, "nodedevices/status", "patch"),
    *each_verb(GROUP, "nodedeviceconfigs", "list", "watch"),
    *each_verb(GROUP, "nodedeviceconfigs/status", "patch"),
    *each_verb(GROUP, "poddevices", "list", "watch", "create", "patch", "delete"),
    *each_verb("resource.k8s.io", "resourceslices", "list", "watch"),
    *each_verb("apiextensions.k8s.io", f"customresourcedefinitions {KINDS}", "get"),
    *(
        (ADMISSION, f"mutatingadmission{kind}{name}", verb)
        for kind in ("policies", "policybindings")
        for name, verbs in (
            ("", ("create",)),
            (" ['nodedevice-required-plugins']", ("list", "watch", "patch", "delete")),
        )
        for verb in verbs
    ),
}
# more of it, by namespace
OF_OPERATOR = {
    SYSTEM_NAMESPACE: {
        *each_verb("apps", "daemonsets ['nodedevice-agent']", "get"),
        *each_verb("coordination.k8s.io", f"leases ['{OPERATOR_LEASE}']", "get", "create", "update"),
    },
    AGENTS_NAMESPACE: each_verb("coordination.k8s.io", "leases", "list", "watch"),
}


def rights(client: Client, namespace: str) -> set[Right]:
    """Every right that the client's account has in a namespace, as the API server lists them to it."""
    review = client.create(SelfSubjectRulesReview(spec=Object(namespace=namespace)))
    assert not review.status.incomplete
    return {
        (group, resource if not rule.resourceNames else f"{resource} {rule.resourceNames}", verb)
        for rule in review.status.resourceRules
        for group in rule.apiGroups or []
        for resource in rule.resources or []
        for verb in rule.verbs
    }


Account = Callable[[str], Client]


@pytest.fixture(scope="module")
def account(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """A client that speaks with the token of a ServiceAccount in the release's namespace; the agent's is bound to NODE."""
    installed.add_node(NODE, wait_ready=False)
    folder: Path = tmp_path_factory.mktemp("accounts")

    with ExitStack() as open_clients:

        def of(name: str) -> Client:
            bound_to = NODE if name == "nodedevice-agent" else None
            path = installed.service_account_kubeconfig(SYSTEM_NAMESPACE, name, folder / name, bound_to)
            return open_clients.enter_context(open_client(path))

        yield of
    installed.remove_node(NODE)


@pytest.fixture(scope="module")
def agent(account: Account) -> Client:
    return account("nodedevice-agent")


@pytest.fixture(scope="module")
def operator(account: Account) -> Client:
    return account("nodedevice-operator")


@pytest.fixture(scope="module")
def nobody(account: Account) -> Client:
    """An account without any role: what it may, everybody may."""
    return account("default")


@pytest.fixture
def published(installed: ControlPlane) -> Iterator[str]:
    """A NodeDevice that is there, with a status."""
    installed.client.apply(node_device(NAME, nodeName=NODE), field_manager=AGENT_FIELD_MANAGER)
    apply_status(installed.client, NAME, free("gpu-0"))
    yield NAME
    installed.client.delete(NodeDevice, NAME)


NAMESPACES = (SYSTEM_NAMESPACE, AGENTS_NAMESPACE, "kube-system", "kube-node-lease", "default")


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_rights_of_the_agent(agent: Client, nobody: Client, namespace: str) -> None:
    own = AGENT_LEASES if namespace == AGENTS_NAMESPACE else set()
    assert rights(agent, namespace) - rights(nobody, namespace) == AGENT | own


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_rights_of_the_operator(operator: Client, nobody: Client, namespace: str) -> None:
    own = OF_OPERATOR.get(namespace, set())
    assert rights(operator, namespace) - rights(nobody, namespace) == OPERATOR | own


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
def test_the_roles_of_namespaces_read_poddevices_and_nothing_else_of_ours(installed: ControlPlane, role: str) -> None:
    """Whoever may write NodeDeviceConfigs names files of nodes, which is not for owners of namespaces."""

    def of_ours() -> list[dict[str, Any]]:
        rules = json.loads(installed.kubectl("get", "clusterrole", role, "-o", "json"))["rules"]
        return [rule for rule in rules or [] if {GROUP, "*"} & set(rule["apiGroups"])]

    wait_until(lambda: bool(of_ours()), "the control plane has aggregated them")
    [rule] = of_ours()
    assert (rule["apiGroups"], rule["resources"]) == ([GROUP], ["poddevices"])
    assert sorted(rule["verbs"]) == ["get", "list", "watch"]
    ours = json.loads(installed.kubectl("get", "clusterroles", "-o", "json"))["items"]
    aggregated = [each["metadata"] for each in ours if "aggregate-to" in json.dumps(each["metadata"].get("labels", {}))]
    assert [meta["name"] for meta in aggregated if "nodedevice" in meta["name"]] == ["nodedevice-view"]


def lease(namespace: str) -> Object:
    return Lease(metadata=Object(name=NODE, namespace=namespace), spec=Object(holderIdentity=NODE))


def forbidden(call: Callable[[], Any]) -> None:
    with pytest.raises(ApiError) as refused:
        call()
    assert refused.value.status.code == 403, refused.value.status


def is_forbidden(call: Callable[[], Any]) -> bool:
    with contextlib.suppress(pytest.fail.Exception):
        forbidden(call)
        return True
    return False


def pod(namespace: str, name: str = "pod-a") -> Object:
    return Pod(
        metadata=Object(name=name, namespace=namespace, annotations={"old": "there"}),
        spec=Object(containers=[Object(name="main", image="img")]),
    )


def patch_pod(client: Client, namespace: str, patch: dict[str, Any]) -> Any:
    by: dict[str, Any] = {"patch_type": PatchType.STRATEGIC, "field_manager": OPERATOR_FIELD_MANAGER}
    return client.patch(Pod, "pod-a", patch, namespace=namespace, **by)


@pytest.fixture
def held_to_policies(installed: ControlPlane, operator: Client, published: str, namespace: str) -> str:
    """A namespace with a pod. The operator is held to each of its policies: the API server takes a moment to notice a new one."""
    installed.client.create(pod(namespace))
    label = {"metadata": {"labels": {"a": "b"}}}
    tried: dict[str, Callable[[], Any]] = {
        "deleting NodeDevices": lambda: operator.delete(NodeDevice, published, dry_run=True),
        "NodeDevices": lambda: operator.patch(NodeDevice, published, label, patch_type=PatchType.MERGE, dry_run=True),
        "pods": lambda: operator.patch(Pod, "pod-a", label, namespace=namespace, dry_run=True),
    }
    for what, call in tried.items():
        wait_until(partial(is_forbidden, call), f"the policy for {what} is in force")
    return namespace


CORDONED = node_device(NAME, nodeName=NODE, cordonedDevices=[{"id": "gpu-0"}])
OTHER_IMAGE = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
TAKEN_OUT = {"spec": {"unschedulable": True}}


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda c, ns: c.patch(Node, NODE, TAKEN_OUT, patch_type=PatchType.MERGE), id="changes its Node"),
        pytest.param(lambda c, ns: c.apply(pod_device(ns), field_manager="x"), id="writes a PodDevice"),
        pytest.param(lambda c, ns: list(c.list(Secret, namespace=ns)), id="reads Secrets"),
    ],
)
def test_agent_cannot(agent: Client, published: str, namespace: str, call: Callable[[Client, str], Any]) -> None:
    forbidden(lambda: call(agent, namespace))


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda c, ns: c.delete(NodeDevice, NAME), id="deletes a NodeDevice that is in use"),
        pytest.param(lambda c, ns: c.apply(CORDONED, field_manager="x"), id="cordons a device"),
        pytest.param(lambda c, ns: patch_pod(c, ns, {"metadata": {"labels": {"a": "b"}}}), id="labels a pod"),
        pytest.param(lambda c, ns: patch_pod(c, ns, {"metadata": {"annotations": {"a": "b"}}}), id="annotates a pod"),
        pytest.param(lambda c, ns: patch_pod(c, ns, {"metadata": {"annotations": {"old": None}}}), id="takes one off"),
        pytest.param(lambda c, ns: patch_pod(c, ns, OTHER_IMAGE), id="changes a pod's image"),
        pytest.param(lambda c, ns: c.replace(lease(SYSTEM_NAMESPACE), NODE), id="makes another Lease beside its own"),
        pytest.param(lambda c, ns: list(c.list(Secret, namespace=ns)), id="reads Secrets"),
    ],
)
def test_operator_cannot(operator: Client, held_to_policies: str, call: Callable[[Client, str], Any]) -> None:
    forbidden(lambda: call(operator, held_to_policies))


def test_operator_patches_pods_with_at_most_the_mark(installed: ControlPlane, operator: Client, namespace: str) -> None:
    made = installed.client.create(pod(namespace))
    assert [each.metadata.name for each in operator.list(Pod, namespace=namespace) if each.metadata] == ["pod-a"]
    patch_pod(operator, namespace, {"metadata": {"uid": made.metadata.uid}})
    marked = patch_pod(operator, namespace, {"metadata": {"annotations": {ANNOTATION: "[ nodedevice ]"}}})
    assert marked.metadata.annotations == {"old": "there", ANNOTATION: "[ nodedevice ]"}
