"""Slices as drivers publish them, for tests of what is made of them."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from nodedevice_agent.dra.devices import PoolKey, Slice
from nodedevice_agent.dra.holdings import PoolHoldings
from nodedevice_agent.dra.pools import Pools
from nodedevice_agent.dra.served import PoolHolders
from nodedevice_agent.dra.slices import ResourceSliceObject, slice_of
from nodedevice_api.nodedevice import AllocationStatus, ClaimedDevice, ClaimStatus
from nodedevice_common.decoding import decode

NODE: Final = "node-a"
DRIVER: Final = "gpu.example.com"
KEY: Final = (DRIVER, NODE)
# by which a pool with the node's name is shown
NAME: Final = f"{DRIVER}/devices"
Json = dict[str, Any]


def device(name: str, **more: Any) -> Json:
    """attributes: by name, each a text, a number or a truth."""
    attributes = {key: _typed(value) for key, value in more.pop("attributes", {}).items()}
    return {"name": name, **({"attributes": attributes} if attributes else {}), **more}


def _typed(value: Any) -> Json:
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
    return value if isinstance(value, dict) else {kind: value}


def body(
    name: str,
    devices: Sequence[Json] = (),
    *,
    driver: str = DRIVER,
    pool: str = NODE,
    generation: int = 1,
    count: int = 1,
    node: str | None = NODE,
    version: int = 1,
    **spec: Any,
) -> Json:
    of_pool = {"name": pool, "generation": generation, "resourceSliceCount": count}
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {
        "metadata": metadata,
        "spec": {"driver": driver, "pool": of_pool, "nodeName": node, "devices": devices, **spec},
    }


def published(name: str, devices: Iterable[Json | str] = (), **more: Any) -> ResourceSliceObject:
    """As it comes from the API server. devices: whole, or names of them."""
    whole = [device(each) if isinstance(each, str) else each for each in devices]
    return decode(json.dumps(body(name, whole, **more)), ResourceSliceObject)


def a_slice(name: str, devices: Iterable[Json | str] = (), **more: Any) -> Slice:
    return slice_of(published(name, devices, **more))


def pools_of(*slices: Slice) -> Pools:
    """Published in this order."""
    found = Pools()
    for each in slices:
        found.put(each)
    return found


def row(pod: str, *devices: str, claim: str = "c", container: str = "main", **more: Any) -> AllocationStatus:
    """What a container has by a claim. shares: what the claim says of its devices."""
    shares: Sequence[ClaimedDevice] = more.pop("shares", ())
    status = ClaimStatus(name=claim, devices=list(shares))
    return AllocationStatus(
        namespace="default",
        name=pod,
        pod_uid=f"uid-{pod}",
        container=container,
        device_ids=[*devices],
        claim=status,
        **more,
    )


class FakeHeld(PoolHolders):
    """What containers have, as a test says."""

    def __init__(self) -> None:
        self.is_known = True
        self.rows: dict[PoolKey, list[AllocationStatus]] = {}
        self.unhealthy: dict[PoolKey, dict[str, str]] = {}

    def of(self, key: PoolKey) -> PoolHoldings:
        return PoolHoldings(tuple(self.rows.get(key, ())), self.unhealthy.get(key, {}))

    def pools(self) -> frozenset[PoolKey]:
        return frozenset(self.rows)
