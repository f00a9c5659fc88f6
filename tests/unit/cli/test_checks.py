"""What `check` concludes from what it has read, line by line."""

from datetime import UTC, datetime
from typing import Final

import pytest
from kubectl_nodedevice import checks
from kubectl_nodedevice.checks import Result
from kubectl_nodedevice.cluster import Lease, Meta

_NOW: Final = datetime(2026, 11, 28, 10, 1, 0, tzinfo=UTC)
_FRESH, _OLD = "2026-11-28T10:00:30Z", "2026-11-28T09:00:00Z"


def lease(renewed: str = _FRESH, holder: str = "x") -> Lease:
    return Lease(Meta("l"), holder, renewed, 30)


_NEWER = "is served, of release 0.10.0, which is newer than this program (0.9.0): it may have what is not shown here"
_OLDER = "is served, of release v0.2.7, which is older than this program (0.3.0): helm upgrade"


@pytest.mark.parametrize(
    ("conditions", "release", "own", "is_good", "details"),
    [
        ({"Established": "True"}, "0.1.0", "0.1.0", True, "is served, of release 0.1.0"),
        ({"Established": "True"}, "", "0.1.0", True, "is served, of release unknown"),
        ({"Established": "True"}, "0.10.0", "0.9.0", True, _NEWER),
        ({"Established": "True"}, "v0.2.7", "0.3.0", True, _OLDER),
        ({"NamesAccepted": "False"}, "0.1.0", "0.1.0", False, "is not served: its names are taken by another kind"),
        ({"Established": "False", "NamesAccepted": "True"}, "", "", False, "is not served: not established yet"),
    ],
)
def test_a_kind(conditions: dict[str, str], release: str, own: str, is_good: bool, details: str) -> None:
    assert checks.of_kind("k", conditions, release, own) == Result("kind", "k", is_good, details)


@pytest.mark.parametrize(
    ("renewed", "is_it"),
    [
        (_FRESH, True),
        ("2026-11-28T10:00:29Z", False),
        ("2026-11-28T10:01:30Z", True),
        ("2026-11-28T10:01:31Z", False),
        ("", False),
    ],
)
def test_a_lease_counts_to_the_second_by_a_clock_that_may_be_wrong(renewed: str, is_it: bool) -> None:
    assert checks.is_renewed(lease(renewed), None, _NOW) is is_it
    assert checks.is_renewed(lease(renewed), lease(renewed), _NOW) is is_it
    assert checks.is_renewed(lease(renewed), lease(_OLD), _NOW)


def test_agents_that_are_silent_have_a_line_each() -> None:
    leases = {"c": lease(_OLD), "a": lease("?"), "b": lease(_OLD), "d": lease()}
    first_seen = {"b": lease("2026-11-28T08:00:00Z"), "c": lease(_OLD)}
    few = "2 renew their Leases, of 3 that the DaemonSet wants; check the agents' pods and logs"
    why = "it does not run, or does not reach the API server"
    assert checks.of_agents(leases, first_seen, _NOW, 3) == [
        Result("agents", "", False, few),
        Result("agent", "a", False, f"renewed its Lease never; {why}"),
        Result("agent", "c", False, f"renewed its Lease 3660 s ago; {why}"),
    ]
    many = {f"n{number:03}": lease(_OLD) for number in range(50)}
    assert len(checks.of_agents(many, {}, _NOW, None)) == 1 + checks.MOST_LISTED
