"""Single objects by the `kubernetes` package's dynamic client, which fails at a list with one object that is too deep."""

from functools import partial
from typing import Final

from kubernetes.client import ApiClient
from kubernetes.dynamic import DynamicClient, Resource
from nodedevice_kube.paths import segment

from nodedevice_operator.cli.api import CRD, DAEMON_SET, DEPLOYMENT, LEASE, NAMESPACE, existed
from nodedevice_operator.kube.typed import call

_GROUPS: Final = {DEPLOYMENT: "apps", DAEMON_SET: "apps", LEASE: "coordination.k8s.io", CRD: "apiextensions.k8s.io"}


class Objects:
    """Objects by their names. kind: the plural of one of those above, or POD."""

    def __init__(self, client: ApiClient) -> None:
        # it gets its resources, and discovers none
        self._dynamic = DynamicClient(client, discoverer=lambda *_: None)

    async def exists(self, kind: str, name: str, namespace: str = "") -> bool:
        """Whether it does, also while it is being deleted."""
        return await self._sent("GET", kind, name, namespace)

    async def delete(self, kind: str, name: str, namespace: str = "") -> bool:
        """Delete it, and then what depends on it; return whether it existed."""
        return await self._sent("DELETE", kind, name, namespace, propagation_policy="Background")

    async def delete_all(self, kind: str, namespace: str) -> None:
        await self._sent("DELETE", kind, None, namespace)

    async def _sent(self, verb: str, kind: str, name: str | None, namespace: str, **options: str) -> bool:
        if {name, namespace} & {".", ".."} or name == "":
            # to a path they are more than names
            return False
        group = _GROUPS.get(kind, "")
        resource = Resource("apis" if group else "api", group, "v1", kind, kind not in (NAMESPACE, CRD), name=kind)
        path = resource.path(name and segment(name), segment(namespace))
        return await existed(call(verb, kind, partial(self._send, verb, path), **options))

    def _send(self, verb: str, path: str, **options: object) -> None:
        self._dynamic.request(verb, path, serialize=False, **options).drain_conn()
