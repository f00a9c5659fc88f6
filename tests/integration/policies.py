"""Policies of admission by which a test has the API server refuse requests of others."""

import json
from collections.abc import Sequence
from typing import Any, Literal

from tests.cluster.control_plane.control_plane import ControlPlane

_VERSION = "admissionregistration.k8s.io/v1"
_POLICY, _BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"


def rule(resource: str, operation: str, name: str, group: str = "") -> dict[str, Any]:
    """The operation on the named object."""
    places = {"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource]}
    return {**places, "operations": [operation], "resourceNames": [name]}


def refuse(
    cluster: ControlPlane,
    name: str,
    rules: Sequence[dict[str, Any]],
    unless: str,
    message: str,
    reason: Literal["Forbidden", "Invalid"] = "Invalid",
) -> None:
    """From some moments later on these are refused, unless the expression holds. name: of policy and binding."""
    validation = {"expression": unless, "message": message, "reason": reason}
    spec = {"matchConstraints": {"resourceRules": [*rules]}, "validations": [validation]}
    for kind, content in ((_POLICY, spec), (_BINDING, {"policyName": name, "validationActions": ["Deny"]})):
        cluster.apply(json.dumps({"apiVersion": _VERSION, "kind": kind, "metadata": {"name": name}, "spec": content}))


def allow(cluster: ControlPlane, name: str) -> None:
    """Take that policy away, where it is there."""
    for kind in (_BINDING, _POLICY):
        cluster.kubectl("delete", kind, name, "--ignore-not-found")
