"""Finds the release's namespaces: of its programs, and of the agents' Leases.

The agents' ClusterRoleBinding counts first: only an administrator can write it. A tenant could label a DaemonSet as ours, so
DaemonSets count only without such a binding; the chart's own names are the default.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from nodedevice_kube.api_errors import Forbidden, NotFound

from kubectl_nodedevice.api import APPS, Api, path_of
from kubectl_nodedevice.cluster import Json, Release
from kubectl_nodedevice.fields import list_of, map_of, text_of
from kubectl_nodedevice.reading import AGENTS_NAMESPACE, SYSTEM_NAMESPACE

T = TypeVar("T")
ACCOUNT: Final = "nodedevice-agent"
AGENTS: Final = "app.kubernetes.io/name=nodedevice,app.kubernetes.io/component=agent"
_BINDINGS: Final = "rbac.authorization.k8s.io/v1"
_LEASES: Final = "nodedevice.io/leases-namespace"
_VARIABLE: Final = "NODEDEVICE_LEASES_NAMESPACE"


def find(api: Api) -> Release:
    """The release of this cluster; with the chart's own names where the reader may not see it. Raises ApiError."""
    binding = _answered(lambda: api.get("clusterrolebindings", path_of(_BINDINGS, "clusterrolebindings", ACCOUNT)))
    found = of_binding(binding) if binding else None
    if found is None:
        sets: list[Json] | None = _answered(
            lambda: list(api.objects("daemonsets", path_of(APPS, "daemonsets"), {"labelSelector": AGENTS}))
        )
        found = of_daemon_sets(sets or [])
    return found or Release()


def _answered(read: Callable[[], T]) -> T | None:
    """The result of `read`; None if the object does not exist, or the person may not read it. Raises ApiError."""
    try:
        return read()
    except (Forbidden, NotFound):
        return None


def of_binding(binding: Json) -> Release | None:
    """The namespace of the binding's service account."""
    subjects = [each for each in list_of(binding, "subjects") if text_of(each, "name") == ACCOUNT]
    namespace = text_of(subjects[0], "namespace") if subjects else ""
    leases = text_of(binding, "metadata", "annotations", _LEASES)
    return Release(namespace, leases or AGENTS_NAMESPACE) if namespace else None


def of_daemon_sets(sets: list[Json]) -> Release | None:
    """By agents of that account; of several namespaces none is chosen, unless one is the chart's own."""
    found = dict(_of_daemon_set(each) for each in sets if _account(each) == ACCOUNT)
    if SYSTEM_NAMESPACE in found:
        return found[SYSTEM_NAMESPACE]
    return next(iter(found.values())) if len(found) == 1 else None


def _account(daemon_set: Json) -> str:
    return text_of(daemon_set, "spec", "template", "spec", "serviceAccountName")


def _of_daemon_set(daemon_set: Json) -> tuple[str, Release]:
    namespace = text_of(daemon_set, "metadata", "namespace")
    variables = [
        text_of(variable, "value")
        for container in list_of(map_of(daemon_set, "spec", "template", "spec"), "containers")
        for variable in list_of(container, "env")
        if text_of(variable, "name") == _VARIABLE
    ]
    return namespace, Release(namespace, (variables or [""])[0] or AGENTS_NAMESPACE)
