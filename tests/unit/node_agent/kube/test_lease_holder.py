"""Whether a Lease may be taken, from what it says: ours, our predecessor's, or from before the API server was restored."""

from typing import Any, cast

import pytest
from nodedevice_agent.deviceplugin.registration_server import Rejections
from nodedevice_agent.errors import LeaseHeld
from nodedevice_agent.kube.client import Json, KubeClient
from nodedevice_agent.kube.lease import LeaseKeeper, identity
from nodedevice_agent.metrics import AgentHealth
from nodedevice_kube.api_errors import Conflict
from nodedevice_kube.leases import lease_of

OURS, PREDECESSOR, STRANGER = "a_1", "a_2", "b_3"
NOW = "2026-01-01T00:00:00.000000Z"


class OneLease:
    """A cluster with one Lease, or none; each write has the next version."""

    def __init__(self) -> None:
        self.found: Json | None = None
        self.version = 100

    def put(self, holder: str, version: int) -> None:
        self.version = version
        metadata = {"name": "n1", "namespace": "ns", "resourceVersion": str(version)}
        self.found = {"metadata": metadata, "spec": {"holderIdentity": holder, "renewTime": NOW}}

    async def node_uid(self, name: str) -> str:
        return "uid"

    async def get_lease(self, namespace: str, name: str) -> Json:
        assert self.found is not None
        return self.found

    async def replace_lease(self, lease: Json) -> Json:
        if lease["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("renewing", "the lease", "the object has been modified", 409)
        self.put(holder_of(lease), self.version + 1)
        assert self.found is not None
        return self.found


def holder_of(lease: Json | None) -> str:
    return lease_of(lease or {}).holder


async def renewed(keeper: LeaseKeeper) -> Any:
    """As run() does: a conflict leads to a new read."""
    try:
        keeper._lease = await keeper._renewed("")
    except Conflict as exc:
        keeper._failed(exc)
        keeper._lease = await keeper._renewed("")


@pytest.mark.parametrize(
    ("has_held", "holder", "version", "is_taken"),
    [
        pytest.param(False, "", 200, True, id="nobody's"),
        pytest.param(False, PREDECESSOR, 200, True, id="a predecessor's, at the start"),
        pytest.param(False, STRANGER, 200, False, id="another agent's, at the start"),
        pytest.param(True, OURS, 200, True, id="ours, with somebody's annotation"),
        pytest.param(True, PREDECESSOR, 200, False, id="a later process of a copied directory"),
        pytest.param(True, STRANGER, 200, False, id="another agent's"),
        pytest.param(True, PREDECESSOR, 20, True, id="a predecessor's, of a restored server"),
        pytest.param(True, STRANGER, 20, True, id="another agent's that had it before us, of a restored server"),
    ],
)
async def test_whether_a_lease_may_be_taken(has_held: bool, holder: str, version: int, is_taken: bool) -> None:
    cluster = OneLease()
    cluster.put("", 100)
    keeper = LeaseKeeper(cast(KubeClient, cluster), "ns", "n1", OURS, Rejections(), AgentHealth())
    if has_held:
        await renewed(keeper)
        assert holder_of(cluster.found) == OURS
    cluster.put(holder, version)
    if is_taken:
        await renewed(keeper)
    else:
        with pytest.raises(LeaseHeld, match=f"lease ns/n1 is held by another agent .{holder}"):
            await renewed(keeper)
    assert holder_of(cluster.found) == (OURS if is_taken else holder)


def test_each_process_is_a_holder_of_its_own() -> None:
    first, second = identity("a" * 32), identity("a" * 32)
    assert first != second
    assert first.partition("_")[0] == second.partition("_")[0] == "a" * 32
