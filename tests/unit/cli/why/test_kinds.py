"""Kinds that only `why` reads: each field from its place."""

from typing import Any, Final

import pytest
from kubectl_nodedevice.cluster import Meta
from kubectl_nodedevice.records import record_of
from kubectl_nodedevice.why.kinds import Event, Request, ResourceClaim

_META: Final = {"name": "n", "namespace": "ns", "creationTimestamp": "made"}


@pytest.mark.parametrize(
    ("times", "at"),
    [
        ({"series": {"lastObservedTime": "s"}, "lastTimestamp": "l", "eventTime": "e"}, "s"),
        ({"lastTimestamp": "l", "eventTime": "e"}, "l"),
        ({"eventTime": "e"}, "e"),
        ({}, "made"),
    ],
)
def test_an_event(times: dict[str, Any], at: str) -> None:
    about = {"kind": "Pod", "name": "p", "uid": "u"}
    obj = {"metadata": _META, "involvedObject": about, "reason": "r", "message": "m", **times}
    assert record_of(Event, obj) == Event("Pod", "p", "u", "r", "m", at)


def test_a_claim() -> None:
    exactly = {"deviceClassName": "a", "count": 3, "adminAccess": True, "tolerations": [{}]}
    choices = [{"deviceClassName": "b", "count": 4}, {"deviceClassName": "c", "count": 2, "tolerations": [{}]}]
    requests = [
        {"name": "r", "exactly": exactly},
        {"name": "s", "firstAvailable": choices},
        {"name": "t", "exactly": {"deviceClassName": "d", "allocationMode": "All", "count": 5}},
        {"name": "u", "exactly": {"deviceClassName": "e"}},
        {"name": "v"},
    ]
    held = {"driver": "dr", "pool": "po", "device": "de"}
    results = [held, {**held, "device": "watched", "adminAccess": True}]
    status = {"allocation": {"devices": {"results": results}, "nodeSelector": {"x": {}}}}
    found = record_of(ResourceClaim, {"metadata": _META, "spec": {"devices": {"requests": requests}}, "status": status})
    asked = (
        *(Request(("a",), 3, True, True), Request(("b", "c"), 2, False, True)),
        *(Request(("d",), 0), Request(("e",), 1), Request((), 0)),
    )
    meta = Meta("n", "ns", created="made")
    assert found == ResourceClaim(meta, asked, True, (("dr", "po", "de"),), {"x": {}})
    assert record_of(ResourceClaim, {}) == ResourceClaim(Meta())
