"""Finds the namespaces of the release: of its programs, and of the agents' Leases.

The agents' ClusterRoleBinding counts first, as only an administrator can write it. A tenant can label a DaemonSet as ours, so
DaemonSets count only without such a binding. The default is the chart's.
"""

from collections.abc import Iterator
from typing import Final

from nodedevice_kube.fields import list_of, map_of, text_of

from kubectl_nodedevice.api import APPS, Api, if_readable, path_of
from kubectl_nodedevice.cluster import AGENTS_NAMESPACE, SYSTEM_NAMESPACE, Json, Release

ACCOUNT: Final = "nodedevice-agent"
AGENTS: Final = "app.kubernetes.io/name=nodedevice,app.kubernetes.io/component=agent"
_BINDINGS: Final = "rbac.authorization.k8s.io/v1"
_LEASES: Final = "nodedevice.io/leases-namespace"
_VARIABLE: Final = "NODEDEVICE_LEASES_NAMESPACE"


def find(api: Api) -> Release:
    """Return the chart's default namespaces if the reader may not see the release. Raises ApiError."""
    if release := bound(api):
        return release
    query = {"labelSelector": AGENTS}
    objects: Iterator[Json] = api.objects("daemonsets", path_of(APPS, "daemonsets"), query)
    sets = if_readable(lambda: list(objects))
    return of_daemon_sets(sets or []) or Release()


def bound(api: Api) -> Release | None:
    """Return the release by its ClusterRoleBinding; None if that is unreadable. Raises ApiError."""
    path = path_of(_BINDINGS, "clusterrolebindings", ACCOUNT)
    return of_binding(if_readable(lambda: api.get("clusterrolebindings", path)) or {})


def of_binding(binding: Json) -> Release | None:
    subjects = [each for each in list_of(binding, "subjects") if text_of(each, "name") == ACCOUNT]
    namespace = text_of(subjects[0], "namespace") if subjects else ""
    leases = text_of(binding, "metadata", "annotations", _LEASES)
    return Release(namespace, leases or AGENTS_NAMESPACE) if namespace else None


def of_daemon_sets(sets: list[Json]) -> Release | None:
    """Read DaemonSets with the agents' account. Of several namespaces only the chart's default is certain."""
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
