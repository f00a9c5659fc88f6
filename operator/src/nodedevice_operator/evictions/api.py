"""The request that evicts a pod."""

from nodedevice_operator.kube.api import CORE, Requests, path_segment


class EvictionsApi(Requests):
    """Evicts pods by the Eviction API."""

    async def evict_pod(self, namespace: str, name: str, uid: str) -> None:
        """Evict the pod of that uid, if its PodDisruptionBudgets allow it.

        Raises Unavailable while they do not, NotFound when it is gone, Conflict when another pod has its name.
        """
        path = f"{CORE}/namespaces/{path_segment(namespace)}/pods/{path_segment(name)}/eviction"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._client.request("POST", "pods/eviction", path, body=body)
