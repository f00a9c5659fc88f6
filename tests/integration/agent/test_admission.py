"""The policy that holds an agent to its own node, on a real API server: tokens bound to pods on two nodes.

The account gets every right on our kinds and on Leases here, so that what refuses is the policy and not the missing right; without
those rights (as the chart has it) even less is possible, see test_chart_rights.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from nodedevice_api.names import (
    AGENT_FIELD_MANAGER,
    AGENTS_NAMESPACE,
    CONFIG_REFUSED_LABEL,
    CONFIGS_ANNOTATION,
    OPERATOR_FIELD_MANAGER,
    REFUSALS_ANNOTATION,
    node_device_name,
)

from hack import yaml_text
from tests.cluster.accounts import client_of_pod
from tests.cluster.api import Client, Lease, Namespace, Node, NodeDevice, Object, PatchType
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.agent.two_agents import GPU, NAME, OTHER, A, B, body, lease, owner, publishing, refused
from tests.integration.crds.custom_resources import apply_status, condition, free, pod_device

pytestmark = pytest.mark.cluster

ACCOUNT = "nodedevice-agent"
FINALIZER = "example.com/stays"
NOTED = {"id": "gpu-0", "reason": "fan", "by": "alice", "at": "2026-01-01T12:00:00Z"}
CORDON: dict[str, Any] = {"spec": {"cordonedDevices": [NOTED]}}


@pytest.fixture(scope="module")
def unchanged(cluster: ControlPlane, agents: dict[str, Client]) -> Iterator[None]:
    """The same for all requests that are refused: they leave both as they are."""

    def versions() -> list[str]:
        return [cluster.client.get(NodeDevice, name)["metadata"]["resourceVersion"] for name in (NAME, OTHER)]

    with publishing(cluster, agents):
        before = versions()
        yield
        assert versions() == before


# -- what an agent does ------------------------------------------------------------------------------------------------


def test_the_work_of_an_agent_passes(cluster: ControlPlane, agents: dict[str, Client], published: None) -> None:
    agent = agents[A]
    cordoned = {"apiVersion": "nodedevice.io/v1alpha1", "kind": "NodeDevice", "metadata": {"name": NAME}, **CORDON}
    cluster.kubectl("apply", "--server-side", "--field-manager=alice", "-f", "-", stdin=yaml_text.dump(cordoned))
    # applied again, while cordoned and labelled, changed and not
    again = agent.apply(body([owner(cluster, A)]), field_manager=AGENT_FIELD_MANAGER, force=True)
    assert again.spec["cordonedDevices"] == [NOTED]
    written = apply_status(agent, NAME, {**free("gpu-0", "gpu-1"), "conditions": [condition("Healthy")]})
    assert {c["type"] for c in written.status["conditions"]} == {"Advertised", "Ready", "Healthy"}
    try:
        made = agent.create(lease())
        for annotated in ({REFUSALS_ANNOTATION: "a"}, {REFUSALS_ANNOTATION: "b"}, {}):
            made.metadata.annotations = annotated
            made.metadata.labels = {CONFIG_REFUSED_LABEL: "true"} if annotated else None
            made = agent.replace(made)
        agent.get(Lease, A, namespace=AGENTS_NAMESPACE)
    finally:
        cluster.client.delete(Lease, A, namespace=AGENTS_NAMESPACE)


def test_the_new_node_of_a_name_replaces_the_old_one(cluster: ControlPlane, agents: dict[str, Client]) -> None:
    old = {**owner(cluster, A), "uid": "11111111-1111-1111-1111-111111111111"}
    agents[A].apply(body([old]), field_manager=AGENT_FIELD_MANAGER, force=True, dry_run=True)
    # an owner that is there keeps the garbage collector from deleting the object
    default = cluster.client.get(Namespace, "default")
    other = {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": default.metadata.uid}
    try:
        cluster.client.apply(body([other]), field_manager="somebody")
        cluster.client.apply(body([old]), field_manager=AGENT_FIELD_MANAGER, force=True)
        now = owner(cluster, A)
        repaired = agents[A].apply(body([now]), field_manager=AGENT_FIELD_MANAGER, force=True, dry_run=True)
        assert {each.uid for each in repaired.metadata.ownerReferences} == {now["uid"], other["uid"]}
    finally:
        cluster.client.delete(NodeDevice, NAME)


@pytest.mark.parametrize(
    ("node", "resource"),
    [
        (A, GPU),
        (A, "example.com/Capital_name"),
        (A, "example.com/a..b-_c"),
        (A, "example.com/looks-deadbeef"),
        (A, f"{'a.' * 100}com/{'n' * 60}"),
        (A, "example.com/Looks-deadbeef"),
        (A, f"{'a' * 63}.{'b' * 63}.{'c' * 63}.de/{'n' * 48}"),
        # cut just after a dot, and at dashes
        (A, f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 39}/{'n' * 60}"),
        (A, f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 30}/nn{'-' * 58}nn"),
        (A, f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 30}/N_{'-_.' * 18}nn"),
    ],
)
def test_every_name_that_an_agent_makes_passes(
    cluster: ControlPlane, agents: dict[str, Client], node: str, resource: str
) -> None:
    made = body([owner(cluster, node)], node_device_name(node, resource), node, resource)
    agents[node].apply(made, field_manager=AGENT_FIELD_MANAGER, dry_run=True)


@pytest.mark.parametrize("node", ["a.dotted.name", "n" * 63 + ("." + "m" * 62) * 3, "x" * 40 + ".y" * 100])
def test_names_of_nodes_with_dots_or_too_long_for_a_name(cluster: ControlPlane, node: str) -> None:
    cluster.client.create(Node(metadata=Object(name=node)))
    try:
        with client_of_pod(cluster, SYSTEM_NAMESPACE, ACCOUNT, node, AGENT_FIELD_MANAGER) as agent:
            made = body([owner(cluster, node)], node_device_name(node, GPU), node)
            agent.apply(made, field_manager=AGENT_FIELD_MANAGER, dry_run=True)
            plain = body([owner(cluster, node)], f"{node[:200]}.example.com.gpu", node)
            assert "is named after its node" in refused(lambda: agent.apply(plain, field_manager="x", dry_run=True))
    finally:
        cluster.remove_node(node)


SHORT, LONGER = "admission", "admission.b"


@pytest.fixture(scope="module")
def short_agent(cluster: ControlPlane) -> Iterator[Client]:
    """The agent of a node whose name, and a dot, begin that of another."""
    cluster.client.create(Node(metadata=Object(name=SHORT)))
    with client_of_pod(cluster, SYSTEM_NAMESPACE, ACCOUNT, SHORT, AGENT_FIELD_MANAGER) as agent:
        yield agent
    cluster.remove_node(SHORT)


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        pytest.param(GPU, node_device_name(LONGER, GPU), id="the name that another node needs"),
        pytest.param("b.example.com/gpu", node_device_name(LONGER, GPU), id="a hash where none belongs"),
        pytest.param("example.com/Gpu", f"{SHORT}.example.com.gpu-notahash", id="no digits"),
        pytest.param("example.com/Gpu", f"{SHORT}.example.com.gpu-more-0badcafe", id="more before the hash"),
    ],
)
def test_only_the_name_of_its_resource(cluster: ControlPlane, short_agent: Client, resource: str, name: str) -> None:
    made = body([owner(cluster, SHORT)], name, SHORT, resource)
    refused_with = refused(lambda: short_agent.apply(made, field_manager=AGENT_FIELD_MANAGER, dry_run=True))
    assert f"is named after its node and resource, {'' if 'Gpu' in resource else 'such as '}{SHORT}." in refused_with


def test_the_hash_itself_is_not_checked(cluster: ControlPlane, short_agent: Client) -> None:
    """The API server's language has no hash: what docs/security.md says that the policy cannot refuse."""
    made = body([owner(cluster, SHORT)], node_device_name(LONGER, GPU), SHORT, "b.example.com/GPU")
    short_agent.apply(made, field_manager=AGENT_FIELD_MANAGER, dry_run=True)


def test_nobody_else_is_asked(cluster: ControlPlane, published: None) -> None:
    merge(cluster.client, CORDON)
    merge(cluster.client, {"metadata": {"labels": {"a": "b"}}})


# -- what it must not do -----------------------------------------------------------------------------------------------


def merge(client: Client, content: dict[str, Any], name: str = NAME) -> Any:
    return client.patch(NodeDevice, name, content, patch_type=PatchType.MERGE)


Call = Callable[[Client, ControlPlane], Any]


def merges(name: str = NAME, **content: Any) -> Call:
    return lambda c, k: merge(c, content, name)


def marks(**metadata: Any) -> Call:
    return merges(metadata=metadata)


def conditions(*kinds: str, manager: str = AGENT_FIELD_MANAGER) -> Call:
    """Applies these alone, as that field manager."""
    found = [condition(kind, "False") for kind in kinds]
    return lambda c, k: apply_status(c, NAME, {"conditions": found}, manager)


def empty_fields_of_others(agent: Client) -> Any:
    stored: Any = agent.get(NodeDevice, NAME)
    entries = stored.to_dict()["metadata"]["managedFields"]
    emptied = [{**each, "fieldsV1": {}} if each["manager"] != AGENT_FIELD_MANAGER else each for each in entries]
    return merge(agent, {"metadata": {"managedFields": emptied}})


def makes(name: str = "", node: str = A, *, is_owned: bool = True, cordons: Any = None, **metadata: Any) -> Call:
    """A new object of a node; name: if it is not its own."""

    def call(c: Client, k: ControlPlane) -> Any:
        owners = [owner(k, node)] if is_owned else []
        made = body(owners, name or node_device_name(node, NEW), node, NEW, **metadata)
        made.spec.update(cordons or {})
        return c.create(made)

    return call


def makes_lease(name: str = A, namespace: str = AGENTS_NAMESPACE, **metadata: Any) -> Call:
    return lambda c, k: c.create(lease(name, namespace, **metadata))


NOBODY = "11111111-1111-1111-1111-111111111111"
NEW, OPERATOR = "example.com/new", "nodedevice-operator"
OF_OTHERS, OF_OPERATOR = f"NodeDevice of node {B}", "are the operator's"
NO_MARKS, ONE_EXCEPTION = "no labels, annotations", "on its Lease are the exceptions"

FORBIDDEN: list[tuple[str, Call, str]] = [
    # another node's
    ("another node's status", lambda c, k: apply_status(c, OTHER, free("x")), OF_OTHERS),
    (
        "another node's object, by apply",
        lambda c, k: c.apply(body([owner(k, B)], OTHER, B), field_manager="x", force=True),
        OF_OTHERS,
    ),
    ("deletes another node's", lambda c, k: c.delete(NodeDevice, OTHER), "deletes nothing"),
    ("makes one for another node", makes(node=B), OF_OTHERS),
    ("takes the name that another node needs", makes(node_device_name(B, NEW)), f"such as {A}.example.com.new"),
    ("another node's Lease", makes_lease(B), f"may only write the Lease {A}, not {B}"),
    # the operator's
    ("the operator's Lease", makes_lease(OPERATOR, SYSTEM_NAMESPACE), "not in"),
    ("the kubelet's Lease", makes_lease(A, "kube-node-lease"), "not in kube-node-lease"),
    ("a PodDevice", lambda c, k: c.apply(pod_device("default"), field_manager="x"), "no poddevices"),
    ("sets Ready", conditions("Ready"), OF_OPERATOR),
    ("sets Ready as the operator", conditions("Ready", manager=OPERATOR_FIELD_MANAGER), OF_OPERATOR),
    ("takes the operator's away", conditions(manager=OPERATOR_FIELD_MANAGER), OF_OPERATOR),
    (
        "removes all conditions",
        lambda c, k: c.patch(NodeDevice.Status, NAME, {"status": {"conditions": None}}, patch_type=PatchType.MERGE),
        OF_OPERATOR,
    ),
    ("leaves the operator's no place", conditions(*(f"A{n}" for n in range(29))), "at most 28 conditions"),
    ("sets Conflict", conditions("Conflict"), OF_OPERATOR),
    ("sets AgentReady", conditions("AgentReady"), OF_OPERATOR),
    # the administrator's
    ("cordons its own device", merges(**CORDON), "cordonedDevices is the administrator's"),
    ("makes one with cordons", makes(cordons=CORDON["spec"]), "makes a NodeDevice without it"),
    ("labels", marks(labels={"team": "b"}), NO_MARKS),
    ("takes labels away", marks(labels=None), NO_MARKS),
    ("annotates", marks(annotations={"note": "b"}), NO_MARKS),
    ("takes annotations away", marks(annotations=None), NO_MARKS),
    ("lists refusals where they do not belong", marks(annotations={REFUSALS_ANNOTATION: "a"}), ONE_EXCEPTION),
    ("annotates its Lease", makes_lease(annotations={"note": "a", REFUSALS_ANNOTATION: "a"}), ONE_EXCEPTION),
    ("reports much on its Lease", makes_lease(annotations={CONFIGS_ANNOTATION: "a" * 2049}), "at most 2048 characters"),
    ("finalizers", marks(finalizers=[FINALIZER]), NO_MARKS),
    ("a Lease with a label", makes_lease(labels={"team": "b"}), NO_MARKS),
    ("a Lease with another value", makes_lease(labels={CONFIG_REFUSED_LABEL: "x"}), "is true or absent"),
    ("a Lease with a finalizer", makes_lease(finalizers=[FINALIZER]), NO_MARKS),
    ("a label of its Lease on another object", marks(labels={CONFIG_REFUSED_LABEL: "true"}), NO_MARKS),
    ("forgets whose the cordons are", marks(managedFields=[{}]), "managedFields"),
    ("empties what others have set", lambda c, k: empty_fields_of_others(c), "no entry of others in managedFields"),
    (
        "a Node that does not exist as owner",
        lambda c, k: merge(c, {"metadata": {"ownerReferences": [{**owner(k, A), "uid": NOBODY}]}}),
        "no Node an owner but the one of its token",
    ),
    (
        "another Node as owner",
        lambda c, k: merge(c, {"metadata": {"ownerReferences": [owner(k, A), owner(k, B)]}}),
        f"nothing but its own Node {A} an owner",
    ),
    ("no owner any more", marks(ownerReferences=[]), "takes no owner off an object"),
    ("makes one without owner", makes(is_owned=False), f"set ownerReferences to Node {A}"),
    (
        "deletes its own",
        lambda c, k: c.delete(NodeDevice, NAME),
        "deletes nothing: a NodeDevice goes with its Node",
    ),
]


@pytest.mark.parametrize(("call", "sentence"), [pytest.param(c, s, id=name) for name, c, s in FORBIDDEN])
@pytest.mark.usefixtures("unchanged")
def test_refused_with_a_sentence(cluster: ControlPlane, agents: dict[str, Client], call: Call, sentence: str) -> None:
    assert sentence in refused(lambda: call(agents[A], cluster))


@pytest.mark.usefixtures("unchanged")
def test_a_token_that_names_no_node_writes_nothing(agents: dict[str, Client]) -> None:
    for call in (lambda: apply_status(agents[""], NAME, free("x")), lambda: agents[""].create(lease())):
        assert "use the one that the kubelet mounts into the agent's pod" in refused(call)


@pytest.mark.parametrize("name", ["nodedevice-agent", "nodedevice-operator", "nodedevice-configs"])
def test_the_api_server_finds_nothing_to_warn_of_in_the_policies(cluster: ControlPlane, name: str) -> None:
    """It checks each expression against the types of what is matched, some time after the policy is made."""

    def checked() -> dict[str, Any]:
        found = yaml_text.load(cluster.kubectl("get", "validatingadmissionpolicy", name, "-o", "yaml"))
        return dict(found.get("status", {})) if found.get("status", {}).get("observedGeneration") else {}

    wait_until(lambda: bool(checked()), f"{name} is type checked")
    assert checked().get("typeChecking", {}) == {}
