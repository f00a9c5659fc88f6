"""The parts of the observation together: a device that a driver offers, the kubelet shows and a claim says more of."""

from pathlib import Path
from typing import cast

import pytest
from msgspec import convert
from nodedevice_agent.dra.claim import ResourceClaimObject
from nodedevice_agent.dra.observation import Observation
from nodedevice_agent.kube.informer import Watches
from nodedevice_api.nodedevice import ClaimedDevice, ClaimStatus, NodeDeviceStatus

from tests.fakes.background import background
from tests.fakes.kubelet_answers import KubeletAnswers, read_at_once
from tests.fakes.virtual_time import later, virtual_time
from tests.unit.node_agent.dra.claimed import pod, row
from tests.unit.node_agent.dra.observed import FILE_NAME, Api
from tests.unit.node_agent.dra.published import NAME, NODE, published
from tests.unit.node_agent.dra.test_claim import body, device
from tests.unit.node_agent.kube.shown_status import MONDAY

pytestmark = virtual_time


async def test_a_device_is_shown_with_who_has_it_by_what_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_at_once(monkeypatch)
    kubelet, api, changed = KubeletAnswers(tmp_path, monkeypatch), Api(), list[str]()
    kubelet.write()
    kubelet.claim_rows = (row("p", pool=NODE),)
    api.slices["s"] = published("s", ["gpu-0", "gpu-1"])
    held = device(pool=NODE, consumedCapacity={"memory": "4Gi"})
    api.claims["default", "claim"] = convert(body(held), ResourceClaimObject)
    reader = kubelet.reader()
    found = Observation(cast(Watches, api), NODE, reader, changed.append, [], tmp_path / FILE_NAME)
    found.holders.pods_synced([pod("p", "claim")])
    async with background(reader.run()), background(found.claims.run()), background(found.slices.run()):
        await later(1)
        make = found.served.status_maker(NAME, NodeDeviceStatus(), MONDAY, 0.0, is_watch_stale=False)
    assert {*changed} == {NAME}
    assert make is not None
    status = make.made()
    assert (status.total, status.allocated) == (2, 1)
    [only] = status.allocations
    devices = [ClaimedDevice(id="gpu-0", consumed_capacity={"memory": "4Gi"})]
    assert (only.name, only.claim) == ("p", ClaimStatus(name="claim", uid="claim-uid", devices=devices))
