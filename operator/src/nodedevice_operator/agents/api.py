"""The request that lists the agents' Leases."""

from nodedevice_api import names

from nodedevice_operator.kube.api import PAGE, Requests, path_segment
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.decode import decode
from nodedevice_operator.objects.lease import LeaseList, LeaseRecord, lease_record


class AgentsApi(Requests):
    """Reads Leases in one namespace, which holds nothing but the agents'."""

    def __init__(self, client: Client, leases_namespace: str) -> None:
        super().__init__(client)
        self.leases_namespace = leases_namespace

    async def list_leases(self) -> dict[str, LeaseRecord]:
        """The agents' Leases by node, from the API server's watch cache: seconds old does no harm, and costs it nothing."""
        found: dict[str, LeaseRecord] = {}
        path = f"/apis/coordination.k8s.io/v1/namespaces/{path_segment(self.leases_namespace)}/leases"
        query: dict[str, str | int] = {"limit": PAGE, "resourceVersion": "0"}
        while True:
            data = await self._client.request("GET", "leases", path, query=query)
            page = decode("GET", "leases", data, LeaseList)
            for lease in page.items:
                found[lease.metadata.name] = lease_record(lease, names.AGENT_LEASE_SECONDS)
            if not page.metadata.continue_:
                return found
            query = {"limit": PAGE, "continue": page.metadata.continue_}
