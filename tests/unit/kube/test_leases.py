"""A Lease as it is read and written, and when it counts as expired by the clock of its reader."""

from typing import Any

import pytest
from nodedevice_kube.leases import Lease, Sighting, lease_of, spec_of

STORED = {
    "metadata": {"resourceVersion": "7"},
    "spec": {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 2,
        "acquireTime": "2026-11-29T12:00:00.000000Z",
        "renewTime": "2026-11-29T12:00:05.000000Z",
    },
}


def test_a_lease_is_written_as_it_was_read() -> None:
    lease = lease_of(STORED)
    assert lease == Lease("a", "2026-11-29T12:00:05.000000Z", "2026-11-29T12:00:00.000000Z", 15, 2, "7")
    assert spec_of(lease) == STORED["spec"]


@pytest.mark.parametrize(
    "found", [{}, {"spec": None}, {"spec": []}, {"metadata": 1, "spec": {"leaseDurationSeconds": True}}]
)
def test_what_is_no_lease_reads_as_an_empty_one(found: Any) -> None:
    assert lease_of(found) == Lease()
    assert spec_of(Lease()) == {"holderIdentity": "", "leaseDurationSeconds": 0, "leaseTransitions": 0}


def test_a_lease_expires_when_it_is_unchanged_for_its_duration() -> None:
    sighting = Sighting()
    sighting.saw(Lease("a", "1", duration_seconds=15), now=100.0)
    sighting.saw(Lease("a", "1", duration_seconds=15), now=110.0)
    assert sighting.expires_in_seconds(110.0, default_seconds=60.0) == 5.0
    sighting.saw(Lease("a", "2", duration_seconds=15), now=112.0)
    assert sighting.expires_in_seconds(112.0, default_seconds=60.0) == 15.0
    sighting.saw(Lease("b", "2"), now=120.0)
    assert sighting.expires_in_seconds(130.0, default_seconds=60.0) == 50.0
    assert sighting.expires_in_seconds(130.0, default_seconds=60.0, longest_seconds=5.0) == -5.0
