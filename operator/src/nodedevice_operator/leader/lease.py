"""The one Lease that says which operator leads: read, and written under the resource version that was read.

It is created by PUT too: a role can allow that for this one name, which it cannot for POST.
"""

import datetime
from typing import Any, Final
from urllib.parse import quote

from nodedevice_api import names

from nodedevice_operator.errors import NotFound
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.decode import decode
from nodedevice_operator.leader.election import LeaderLease
from nodedevice_operator.objects.unwatched import LeaseSchema

_WHAT: Final = "leases"


class LeaderLeases:
    """Requests about that Lease. Its client has no fence: these requests are what opens it."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases/{names.OPERATOR_LEASE}"

    async def read(self) -> LeaderLease:
        """The Lease as it is; one without a version if it does not exist. Raises ApiError."""
        try:
            data = await self._client.request("GET", _WHAT, self._path)
        except NotFound:
            return LeaderLease()
        return _from_wire("GET", data)

    async def write(self, lease: LeaderLease) -> LeaderLease:
        """Replace exactly the version that `lease` carries, or create it; the Lease as it is then.

        Raises Conflict, Invalid or NotFound when it is no longer that one, or another ApiError.
        """
        data = await self._client.request("PUT", _WHAT, self._path, body=self._to_wire(lease))
        return _from_wire("PUT", data)

    def _to_wire(self, lease: LeaderLease) -> dict[str, Any]:
        metadata = {"name": names.OPERATOR_LEASE, "namespace": self._namespace}
        if lease.version:
            metadata["resourceVersion"] = lease.version
        spec: dict[str, Any] = {
            "leaseDurationSeconds": lease.duration_seconds,
            "acquireTime": lease.acquired,
            "renewTime": lease.renewed,
            "leaseTransitions": lease.transitions,
        }
        if lease.holder:
            spec["holderIdentity"] = lease.holder
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def now_text() -> str:
    """The time as a Lease has it, to the microsecond: two renewals never look the same."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _from_wire(verb: str, data: bytes) -> LeaderLease:
    wire = decode(verb, _WHAT, data, LeaseSchema)
    spec = wire.spec
    return LeaderLease(
        holder=spec.holder_identity or "",
        renewed=spec.renew_time,
        acquired=spec.acquire_time,
        duration_seconds=spec.lease_duration_seconds or 0,
        transitions=spec.lease_transitions or 0,
        version=wire.metadata.resource_version,
    )
