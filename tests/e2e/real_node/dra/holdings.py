"""Which container holds which device, by everybody's own word: the kubelet, the claims in the API, our two kinds, the containers.

differences(cluster, "node-1", socket)      empty where all of them agree
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2, api_pb2_grpc

from tests.cluster.api import NodeDevice, Pod, PodDevice, ResourceClaim
from tests.cluster.cluster import Cluster

Json = dict[str, Any]
_ANSWER_SECONDS = 10.0
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, order=True)
class Held:
    """A device of a container. source: a resource name, or `<driver>/<pool>`. claim, share: of DRA; "" for others.

    container: "" where who says so does not know it.
    """

    namespace: str
    pod: str
    container: str
    source: str
    device: str
    claim: str = ""
    share: str = ""


def by_kubelet(socket: Path) -> set[Held]:
    """What PodResources lists."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        stub = api_pb2_grpc.PodResourcesListerStub(channel)
        listed = stub.List(api_pb2.ListPodResourcesRequest(), timeout=_ANSWER_SECONDS)
    return set(_of_pod_resources(listed))


def _of_pod_resources(listed: api_pb2.ListPodResourcesResponse) -> Iterator[Held]:
    for pod in listed.pod_resources:
        for container in pod.containers:
            who = (pod.namespace, pod.name, container.name)
            for given in container.devices:
                yield from (Held(*who, given.resource_name, device) for device in given.device_ids)
            for claim in container.dynamic_resources:
                for found in claim.claim_resources:
                    source = f"{found.driver_name}/{found.pool_name}"
                    yield Held(*who, source, found.device_name, claim.claim_name, found.share_id)


def by_node_devices(cluster: Cluster, node: str) -> set[Held]:
    """What NodeDevices of a node show."""
    return {
        held
        for found in cluster.client.list(NodeDevice)
        if found["spec"]["nodeName"] == node
        for row in found.get("status", {}).get("allocations", ())
        for held in _of_row({**found["spec"], **found["status"]}, row)
    }


def _of_row(offered: Json, row: Json) -> Iterator[Held]:
    """offered: spec and status of the NodeDevice."""
    claim = row.get("claim", {})
    for device in row.get("deviceIDs", ()):
        shares = [
            found["shareID"] for found in claim.get("devices", ()) if found["id"] == device and "shareID" in found
        ]
        for share in shares or [""]:
            who = (row["namespace"], row["name"], row["container"])
            yield Held(*who, _source(offered), device, claim.get("name", ""), share)


def _source(of: Json) -> str:
    return f"{of['driver']}/{of['pool']}" if of.get("driver") else of["resourceName"]


def by_pod_devices(cluster: Cluster, node: str) -> set[Held]:
    """What PodDevices of a node show."""
    return {
        Held(*who, _source(resource), device["id"], device.get("claim", ""), device.get("shareID", ""))
        for who, resource, device in _of_pod_devices(cluster, node)
    }


def _of_pod_devices(cluster: Cluster, node: str) -> Iterator[tuple[tuple[str, str, str], Json, Json]]:
    """Of each device in a PodDevice: namespace, pod and container; its resource; and itself."""
    for found in cluster.client.list(PodDevice, namespace="*"):
        about = found["metadata"]
        for container in found.get("status", {}).get("containers", ()) if found["spec"]["nodeName"] == node else ():
            for resource in container.get("resources", ()):
                for device in resource.get("devices", ()):
                    yield (about["namespace"], about["name"], container["name"]), resource, device


def by_claims(cluster: Cluster, node: str) -> set[Held]:
    """What claims are allocated and reserved, for pods of the node that have not ended. Claims know no containers."""
    pods = {
        (pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        for pod in cluster.client.list(Pod, namespace="*", fields={"spec.nodeName": node})
        if pod.metadata and pod.status and pod.status.phase not in _ENDED
    }
    return {
        Held(namespace, user["name"], "", f"{result['driver']}/{result['pool']}", result["device"], name, share)
        for claim in cluster.client.list(ResourceClaim, namespace="*")
        for namespace, name in [(claim["metadata"]["namespace"], claim["metadata"]["name"])]
        for user in claim.get("status", {}).get("reservedFor", ())
        if (namespace, user["name"], user["uid"]) in pods
        for result in claim["status"].get("allocation", {}).get("devices", {}).get("results", ())
        for share in [result.get("shareID", "")]
    }


@dataclass(frozen=True, order=True)
class AskedByName:
    """A container that asked for devices by an extended resource's name, and the claim that was made of it."""

    namespace: str
    pod: str
    container: str
    claim: str
    resource: str


def asked_by_pods(cluster: Cluster, node: str) -> set[AskedByName]:
    """What pods of the node that have not ended say, of containers that go on running."""
    return {
        AskedByName(
            pod["metadata"]["namespace"], pod["metadata"]["name"], container, made["resourceClaimName"], resource
        )
        for pod in cluster.client.list(Pod, namespace="*", fields={"spec.nodeName": node})
        if pod["status"].get("phase") not in _ENDED
        for made in [pod["status"].get("extendedResourceClaimStatus", {})]
        for mapping in made.get("requestMappings", ())
        for container, resource in [(mapping["containerName"], mapping["resourceName"])]
        if container in {each["name"] for each in pod["spec"]["containers"]}
    }


def asked_by_pod_devices(cluster: Cluster, node: str) -> set[AskedByName]:
    """What PodDevices of a node show."""
    return {
        AskedByName(*who, device["claim"], device["extendedResource"])
        for who, _, device in _of_pod_devices(cluster, node)
        if "extendedResource" in device
    }


def differences(cluster: Cluster, node: str, socket: Path, ours: Iterable[Held] = ()) -> list[str]:
    """What one says and another does not, a line each. ours: what the node's agent has given, by the containers' own word."""
    kubelets = by_kubelet(socket)
    given = kubelets | set(ours)
    of_claims = {replace(held, container="") for held in kubelets if held.claim}
    return [
        *_compared("PodResources", given, "NodeDevices", by_node_devices(cluster, node)),
        *_compared("PodResources", given, "PodDevices", by_pod_devices(cluster, node)),
        *_compared("PodResources", of_claims, "claims", by_claims(cluster, node)),
        *_compared("Pods", asked_by_pods(cluster, node), "PodDevices", asked_by_pod_devices(cluster, node)),
    ]


def _compared(one: str, of_one: set[Any], other: str, of_other: set[Any]) -> list[str]:
    return [
        *(f"{one} alone, not {other}: {held}" for held in sorted(of_one - of_other)),
        *(f"{other} alone, not {one}: {held}" for held in sorted(of_other - of_one)),
    ]
