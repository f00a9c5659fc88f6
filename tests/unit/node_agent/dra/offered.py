"""What is offered of a pool, and what is shown of that: a status that the API server would take."""

import json
from typing import Any

from msgspec import to_builtins
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.dra.devices import Slice
from nodedevice_agent.dra.pools import Pool
from nodedevice_agent.dra.status import Offered, conditions, snapshot, with_times
from nodedevice_agent.kube.status import node_device_status
from nodedevice_api.nodedevice import AllocationStatus, NodeDeviceStatus

from tests.unit.node_agent.dra.published import KEY, NAME, Json, a_slice, device, pools_of
from tests.unit.node_agent.kube import crd_rules
from tests.unit.node_agent.kube.shown_status import MAX_OBJECT_BYTES, MONDAY


def tainted(name: str, effect: str) -> Json:
    return device(name, taints=[{"key": "a.com/hot", "effect": effect}])


def pool_of(*devices: Json | str, **more: Any) -> Pool:
    return pool_of_slices(a_slice("s", devices, **more))


def pool_of_slices(*slices: Slice) -> Pool:
    pool = pools_of(*slices).get(KEY)
    assert pool is not None
    return pool


def offered(pool: Pool | None, *rows: AllocationStatus, **more: Any) -> Offered:
    state = EndpointState.RUNNING if pool is not None else EndpointState.GONE
    return Offered(KEY, NAME, pool, state, rows, **more)


def shown(found: Offered) -> Json:
    """The whole status, which the API server would take."""
    now = snapshot(found)
    whole = node_device_status(
        now,
        NodeDeviceStatus(),
        wall_time=MONDAY,
        version="0",
        delivery="kubelet",
        served_by="dra",
        rows=with_times(found.rows, (), MONDAY),
        conditions=conditions(found, now),
    )
    encoded: Json = to_builtins(whole)
    problems = crd_rules.problems(encoded)
    assert not problems, problems
    assert len(json.dumps(encoded)) < MAX_OBJECT_BYTES
    return encoded
