"""What the operator's token can write into managedFields of the kinds that it may patch: nothing but its own entry.

The chart gives it these rights as they are; what refuses is a policy.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from nodedevice_api.names import API_VERSION, CORDONS_FIELD_MANAGER, OPERATOR_FIELD_MANAGER

from hack import yaml_text
from tests.cluster.accounts import client_with_token
from tests.cluster.api import ApiError, Client, NodeDevice, PatchType, Pod
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.cluster import a_pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import field_entry, is_refused, node_device

pytestmark = pytest.mark.cluster

Fields = list[dict[str, Any]]
NAME = node_device().metadata.name
SOMEBODY = "somebody"
# by kind: the object, and the operator's own field manager of it
OBJECTS: dict[str, tuple[Any, str]] = {"node_device": (NodeDevice, NAME), "pod": (Pod, "waiting")}
OWN = {"node_device": CORDONS_FIELD_MANAGER, "pod": OPERATOR_FIELD_MANAGER}


def tampering(own: str, version: str) -> dict[str, Callable[[Fields], Fields]]:
    return {
        "somebody": lambda fields: [*fields, field_entry(SOMEBODY, 1, version)],
        "own nested": lambda fields: [*fields, field_entry(own, version=version)],
        "emptied": lambda fields: [{**each, "fieldsV1": {}} for each in fields],
        "reset": lambda fields: [{}],
    }


class Objects:
    """An object of each kind, as others have made them, and the operator's patches of them. Nothing is stored."""

    def __init__(self, admin: Client, operator: Client, namespace: str) -> None:
        self.admin, self.operator, self.namespace = admin, operator, namespace

    def patch(self, kind: str, content: Any, patch_type: PatchType = PatchType.MERGE, manager: str = "") -> Any:
        of, name = OBJECTS[kind]
        by: dict[str, Any] = {"patch_type": patch_type, "field_manager": manager or OWN[kind], **self.place(kind)}
        return self.operator.patch(of, name, content, dry_run=True, **by)

    def fields(self, kind: str) -> Fields:
        found: Any = self.admin.get(*OBJECTS[kind], **self.place(kind))
        return list(found.to_dict()["metadata"]["managedFields"])

    def place(self, kind: str) -> dict[str, Any]:
        return {"namespace": self.namespace} if kind == "pod" else {}


@pytest.fixture(scope="module")
def objects(installed: ControlPlane) -> Iterator[Objects]:
    namespace = "operator-managed-fields"
    installed.add_namespace(namespace)
    installed.apply(yaml_text.dump(a_pod("waiting", namespace, {"example.com/gpu": 1})))
    installed.client.apply(node_device(), field_manager=SOMEBODY)
    with client_with_token(installed, SYSTEM_NAMESPACE, "nodedevice-operator") as operator:
        found = Objects(installed.client, operator, namespace)
        wait_until(lambda: is_held(found), "the policies are in force")
        yield found
    installed.client.delete(NodeDevice, NAME)
    installed.remove_namespace(namespace, grace_seconds=0)


def is_held(found: Objects) -> bool:
    labels = {"metadata": {"labels": {"a": "b"}}}
    return all(is_refused(partial(found.patch, kind, labels), "ValidatingAdmissionPolicy") for kind in OBJECTS)


ROWS = [
    pytest.param(kind, verb, change, id=f"{kind} {verb.name} {name}")
    for kind, version in (("node_device", API_VERSION), ("pod", "v1"))
    for verb in (PatchType.MERGE, PatchType.JSON)
    for name, change in tampering(OWN[kind], version).items()
]


@pytest.mark.parametrize(("kind", "verb", "change"), ROWS)
def test_what_a_request_brings_is_refused(
    objects: Objects, kind: str, verb: PatchType, change: Callable[[Fields], Fields]
) -> None:
    fields = change(objects.fields(kind))
    content: Any = {"metadata": {"managedFields": fields}}
    if verb is PatchType.JSON:
        content = [{"op": "replace", "path": "/metadata/managedFields", "value": fields}]
    with pytest.raises(ApiError, match=r"ValidatingAdmissionPolicy.*managedFields"):
        objects.patch(kind, content, verb)


@pytest.mark.parametrize("kind", OBJECTS)
def test_it_patches_as_itself_with_nothing_and_as_no_other(objects: Objects, kind: str) -> None:
    objects.patch(kind, {})
    with pytest.raises(ApiError, match=r"ValidatingAdmissionPolicy.*(as the field manager|fieldManager=)"):
        objects.patch(kind, {}, manager=SOMEBODY)
