"""The policy that makes pods wait for their node's agent, on a real API server: whom it annotates, and that nobody escapes it.

The effective value is computed as NRI's default validator does it: the key of the container, else the pod's, else the plain one.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from nodedevice_api.names import REQUIRED_PLUGINS_ANNOTATION as ANNOTATION
from nodedevice_operator.requiredplugins import policy as required_plugins
from nodedevice_operator.requiredplugins.policy import BINDINGS, NAME, POLICIES, is_annotated

from tests.cluster.api import Client, Object, PatchType, Pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.errors import CommandError
from tests.cluster.waiting import wait_until
from tests.fakes.operator.node_status import NodeStatusModel
from tests.fakes.operator.operator_model import node_device
from tests.integration.releases import MUTATING_POLICIES, needs

pytestmark = pytest.mark.cluster

GPU, NIC = "managed.example.com/gpu", "managed.example.com/nic"


@pytest.fixture(scope="module")
def client(control_plane: ControlPlane) -> Iterator[Client]:
    """The policy is in force for two names."""
    needs(control_plane, MUTATING_POLICIES)
    names = (GPU, NIC)
    bodies = [
        required_plugins.body(POLICIES, required_plugins.policy_spec(names)),
        required_plugins.body(BINDINGS, required_plugins.binding_spec()),
    ]
    control_plane.apply(yaml.safe_dump_all(bodies))
    wait_until(lambda: annotated(control_plane.client, {GPU: "1"}) != {}, "the policy is in force")
    yield control_plane.client
    for kind in (BINDINGS, POLICIES):
        control_plane.kubectl("delete", kind, NAME)
    wait_until(lambda: annotated(control_plane.client, {GPU: "1"}) == {}, "the policy is gone")


def pod(
    limits: dict[str, Any], init: dict[str, Any] | None = None, annotations: dict[str, str] | None = None
) -> Object:
    def container(name: str, limits: dict[str, Any]) -> Object:
        return Object(name=name, image="none.invalid/none", resources=Object(limits=limits))

    spec = Object(containers=[Object(name="plain", image="none.invalid/none"), container("main", limits)])
    if init is not None:
        spec.initContainers = [container("init", init)]
    return Pod(metadata=Object(name="asks", namespace="default", annotations=annotations), spec=spec)


def annotated(client: Client, limits: dict[str, Any], **annotations: str) -> dict[str, str]:
    """Annotations of a pod with these limits, once the API server has admitted it."""
    made = client.create(pod(limits, annotations=annotations), dry_run=True)
    return made.metadata.annotations or {}


def required(annotations: dict[str, str], container: str = "main") -> list[str]:
    """Plugins that NRI's default validator asks for before it lets this container start."""
    keys = (f"{ANNOTATION}/container.{container}", f"{ANNOTATION}/pod", ANNOTATION)
    found = yaml.safe_load(next(annotations[key] for key in keys if key in annotations))
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    ("limits", "init", "is_annotated"),
    [
        pytest.param({GPU: "1"}, None, True, id="asks"),
        pytest.param({}, {GPU: "1"}, True, id="only its init container asks"),
        pytest.param({GPU: "0"}, None, False, id="asks for none"),
        pytest.param({GPU: "0.0"}, None, False, id="asks for none, spelt otherwise"),
        pytest.param({"managed.example.com/gpu2": "1"}, None, False, id="a longer name"),
        pytest.param({"example.com/gpu": "1"}, None, False, id="a name that is not managed"),
    ],
)
def test_exactly_the_pods_that_ask(
    client: Client, limits: dict[str, Any], init: dict[str, Any] | None, is_annotated: bool
) -> None:
    made = client.create(pod(limits, init), dry_run=True)
    assert (ANNOTATION in (made.metadata.annotations or {})) is is_annotated
    if is_annotated:
        assert required(made.metadata.annotations or {}) == ["nodedevice"]


@pytest.mark.parametrize(
    ("before", "others"),
    [
        ("", []),
        ("nodedevice", []),
        ("null", []),
        ("{}", []),
        ("[foo", []),
        ("[ foo , bar ]", ["foo", "bar"]),
        ("['foo','nodedevice2']", ["foo", "nodedevice2"]),
        ("- foo\n- bar\n", ["foo", "bar"]),
        ("- foo # nodedevice", []),
        ("[foo] # ] nodedevice", []),
        ("# [nodedevice]", []),
        ("&a [foo]", []),
        ("--- []\n--- [nodedevice]", []),
        ("[foo,]", []),
        ("[\u00a0nodedevice ]", []),
        ("[x-nodedevice]", ["x-nodedevice"]),
        ('["nodedevice "]', ["nodedevice "]),
        ("[\vnodedevice]", []),
        ("- nodedevice\n\n", []),
        ("[ node\u200bdevice ]", []),
    ],
)
@pytest.mark.parametrize("key", [ANNOTATION, f"{ANNOTATION}/pod", f"{ANNOTATION}/container.main"])
def test_no_spelling_of_the_author_switches_it_off(client: Client, key: str, before: str, others: list[str]) -> None:
    found = annotated(client, {GPU: "1"}, **{key: before, "unrelated": "stays"})
    assert required(found) == [*others, "nodedevice"]
    # the operator reads it as the policy does
    assert not is_annotated({ANNOTATION: before})
    assert is_annotated(found)
    assert required(found, "plain")[-1] == "nodedevice"
    assert found["unrelated"] == "stays"


@pytest.mark.parametrize(
    "value",
    [
        "[nodedevice]",
        '["nodedevice"]',
        "['nodedevice', foo]",
        "- foo\n- nodedevice\n",
        "- 'nodedevice'\n- foo\n",
    ],
)
def test_what_holds_it_already_is_left_as_it_is(client: Client, value: str) -> None:
    assert is_annotated({ANNOTATION: value})
    assert annotated(client, {GPU: "1"}, **{ANNOTATION: value}) == {ANNOTATION: value}


def test_taken_off_later_it_is_put_back(client: Client, namespace: str) -> None:
    made = pod({GPU: "1"})
    made.metadata.namespace = namespace
    client.create(made)
    for value in (None, "[]"):
        patch = {"metadata": {"annotations": {ANNOTATION: value, f"{ANNOTATION}/container.main": "[]"}}}
        changed = client.patch(Pod, "asks", patch, namespace=namespace, patch_type=PatchType.MERGE)
        assert required(changed.metadata.annotations or {}) == ["nodedevice"]


def test_it_is_stored_as_it_was_sent(control_plane: ControlPlane, client: Client) -> None:
    """Otherwise the operator would find a difference at every check."""
    for kind, spec in (
        (POLICIES, required_plugins.policy_spec((GPU, NIC))),
        (BINDINGS, required_plugins.binding_spec()),
    ):
        assert json.loads(control_plane.kubectl("get", kind, NAME, "-o", "json"))["spec"] == spec


def test_as_many_names_as_it_may_hold(control_plane: ControlPlane, client: Client) -> None:
    """The API server refuses more than 100,000 characters, so the operator stops before that."""
    records = [
        node_device(f"vendor-{number}.example.com/{'n' * 60}", node=f"node-{number % 20}", delivery="nri")
        for number in range(1200)
    ]
    kept = required_plugins.select(records, {each.node: NodeStatusModel().record() for each in records})
    assert len(kept.left_out) > 100
    names = tuple(sorted({GPU, NIC, *kept.names}))
    too_many = tuple(sorted({*names, *kept.left_out}))
    with pytest.raises(CommandError, match=r"exceeds limit: size: 10[0-9]+, limit 100000"):
        control_plane.apply(yaml.safe_dump(required_plugins.body(POLICIES, required_plugins.policy_spec(too_many))))
    control_plane.apply(yaml.safe_dump(required_plugins.body(POLICIES, required_plugins.policy_spec(names))))
    asked = {names[-1]: "1"}
    wait_until(lambda: annotated(client, asked) != {}, "the longer policy is in force")
    many = pod(asked)
    many.spec.containers += [
        Object(name=f"c{i}", image="x", resources=Object(limits=dict.fromkeys(names[:20], "1"))) for i in range(40)
    ]
    made = client.create(many, dry_run=True)
    assert required(made.metadata.annotations or {}) == ["nodedevice"]
