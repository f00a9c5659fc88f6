"""What the operator's token can write into managedFields of the kinds that it may patch: nothing but its own entry.

The chart gives it these rights as they are; what refuses is a policy.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from nodedevice_api.names import CORDONS_FIELD_MANAGER, OPERATOR_FIELD_MANAGER

from hack import yaml_text
from tests.cluster.accounts import client_with_token
from tests.cluster.api import ApiError, Client, NodeDevice, PatchType, Pod
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.cluster import a_pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import node_device

pytestmark = pytest.mark.cluster

Fields = list[dict[str, Any]]
NAME = node_device().metadata.name
SOMEBODY = "somebody"


def entry(manager: str, version: str, levels: int, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for _ in range(levels):
        fields = {"f:a": fields}
    return {
        **{"manager": manager, "operation": "Update", "apiVersion": version, "time": "2026-01-01T12:00:00Z"},
        **{"fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}, **more},
    }


def tampering(own: str, version: str) -> dict[str, Callable[[Fields], Fields]]:
    return {
        "somebody": lambda fields: [*fields, entry(SOMEBODY, version, 1)],
        "own nested": lambda fields: [*fields, entry(own, version, 300)],
        "emptied": lambda fields: [{**each, "fieldsV1": {}} for each in fields],
        "reset": lambda fields: [{}],
    }


class Objects:
    """An object of each kind, as others have made them, and the operator's patches of them. Nothing is stored."""

    def __init__(self, admin: Client, operator: Client, namespace: str) -> None:
        self.admin, self.operator, self.namespace = admin, operator, namespace

    def node_device(self, patch_type: PatchType, content: Any, manager: str = CORDONS_FIELD_MANAGER) -> Any:
        by: dict[str, Any] = {"patch_type": patch_type, "field_manager": manager, "dry_run": True}
        return self.operator.patch(NodeDevice, NAME, content, **by)

    def pod(self, patch_type: PatchType, content: Any, manager: str = OPERATOR_FIELD_MANAGER) -> Any:
        by: dict[str, Any] = {"patch_type": patch_type, "field_manager": manager, "dry_run": True}
        return self.operator.patch(Pod, "waiting", content, namespace=self.namespace, **by)

    def fields(self, kind: str) -> Fields:
        if kind == "node_device":
            found: Any = self.admin.get(NodeDevice, NAME)
        else:
            found = self.admin.get(Pod, "waiting", namespace=self.namespace)
        return list(found.to_dict()["metadata"]["managedFields"])


@pytest.fixture
def objects(made: Objects) -> Objects:
    return made


@pytest.fixture(scope="module")
def made(installed: ControlPlane) -> Iterator[Objects]:
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
    def refuses(call: Callable[[], Any]) -> bool:
        try:
            call()
        except ApiError as exc:
            return "ValidatingAdmissionPolicy" in str(exc.status.message)
        return False

    labels = {"metadata": {"labels": {"a": "b"}}}
    return all(refuses(partial(call, PatchType.MERGE, labels)) for call in (found.node_device, found.pod))


ROWS = [
    pytest.param(kind, verb, change, id=f"{kind} {verb.name} {name}")
    for kind, own, version in (
        ("node_device", CORDONS_FIELD_MANAGER, "nodedevice.io/v1alpha1"),
        ("pod", OPERATOR_FIELD_MANAGER, "v1"),
    )
    for verb in (PatchType.MERGE, PatchType.JSON)
    for name, change in tampering(own, version).items()
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
        getattr(objects, kind)(verb, content)


@pytest.mark.parametrize("kind", ["node_device", "pod"])
def test_it_patches_as_itself_with_nothing_and_as_no_other(objects: Objects, kind: str) -> None:
    getattr(objects, kind)(PatchType.MERGE, {})
    with pytest.raises(ApiError, match=r"ValidatingAdmissionPolicy.*(as the field manager|fieldManager=)"):
        getattr(objects, kind)(PatchType.MERGE, {}, manager=SOMEBODY)
