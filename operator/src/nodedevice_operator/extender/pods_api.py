"""The extender's requests about one pod: its binding, with the parts that were chosen, and a consistent read of it."""

from nodedevice_api import assigned_parts, names
from nodedevice_kube.api_errors import NotFound
from nodedevice_kube.paths import PODS

from nodedevice_operator.extender.wire import BindRequest
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.decode import decode
from nodedevice_operator.kube.requests import at
from nodedevice_operator.objects.bound_pod import PodNeeds, pod_needs
from nodedevice_operator.objects.unwatched import OVER, PodSchema


class PodsApi:
    """timeout_seconds: the API server's limit for a bind; it does not bind later."""

    def __init__(self, client: Client, timeout_seconds: int) -> None:
        self._client = client
        self._query = {"timeout": f"{timeout_seconds}s"}

    async def bind(self, pod: BindRequest, assigned: assigned_parts.Assigned) -> None:
        """Sets node and parts of exactly that pod (uid) in one write. Raises ApiError."""
        metadata: dict[str, object] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        if assigned:
            metadata["annotations"] = {names.ASSIGNED_PARTS_ANNOTATION: assigned_parts.encode(pod.uid, assigned)}
        target = {"apiVersion": "v1", "kind": "Node", "name": pod.node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        where = at(PODS, pod.name, pod.namespace, "binding")
        await self._client.request("POST", *where, query=self._query, body=body)

    async def read(self, pod: BindRequest) -> tuple[str, str, bool]:
        """Uid and node ("" for none) of the pod that has that name now, and whether it has ended. Raises ApiError."""
        found = await self._get(pod)
        return found.metadata.uid, found.spec.node_name, found.status.phase in OVER

    async def needs(self, pod: BindRequest) -> PodNeeds:
        """Reads the pod's needs. Raises NotFound if another pod has its name, or another ApiError."""
        found = await self._get(pod)
        if found.metadata.uid != pod.uid:
            raise NotFound("GET", "pods", "the pod was deleted, and another pod has its name", 404)
        return pod_needs(found)

    async def _get(self, pod: BindRequest) -> PodSchema:
        data = await self._client.request("GET", *at(PODS, pod.name, pod.namespace))
        return decode("GET", "pods", data, PodSchema)
