"""How much of a pool fits a NodeDevice: which devices are named, and which of them with attributes."""

import pytest

from tests.unit.node_agent.dra.offered import offered, pool_of_slices, shown, tainted
from tests.unit.node_agent.dra.published import a_slice, device, row
from tests.unit.node_agent.kube.shown_status import MONDAY


@pytest.mark.parametrize(
    ("attributes", "value"), [(0, ""), (32, "x" * 64), (32, "😀" * 64)], ids=["none", "ascii", "all"]
)
def test_a_long_list_is_cut_and_counted_with_what_matters_in_it(attributes: int, value: str) -> None:
    names = [f"device-{n:05}" for n in range(6_000)]
    values = {f"attribute-{n}": value for n in range(attributes)}
    devices = [device(name, attributes=values) for name in names]
    slices = [a_slice(f"s{n}", devices[n : n + 128], count=47) for n in range(0, 5_888, 128)]
    last = a_slice("s5888", [*names[5888:-1], tainted(names[-1], "NoSchedule")], count=47)
    pool = pool_of_slices(*slices, last)
    whole = shown(offered(pool, row("p", names[-2]), row("q", "gone"), unhealthy={names[-2]: "ECC"}))
    assert (whole["total"], whole["healthy"], whole["allocated"], whole["available"]) == (6_001, 5_999, 2, 5_998)
    listed = [each["id"] for each in whole["devices"]]
    assert {"gone", names[-1], names[-2]} <= {*listed}
    assert len(listed) >= 1_000 - 1
    assert whole["devicesOmitted"] == 6_001 - len(listed)


@pytest.mark.parametrize("taints", [1, 16])
def test_where_all_are_tainted_those_that_are_broken_or_held_are_in_the_list(taints: int) -> None:
    keys = [f"a.com/{'k' * 250}-{number}" for number in range(taints)]
    of_each = [{"key": key, "value": "v" * 63, "effect": "NoSchedule", "timeAdded": MONDAY} for key in keys]
    attributes = {f"attribute-{number}": "x" * 64 for number in range(32)}
    names = [f"device-{number:04}" for number in range(2_000)]
    devices = [device(name, taints=of_each, attributes=attributes) for name in names]
    pool = pool_of_slices(*(a_slice(f"s{n}", devices[n : n + 64], count=32) for n in range(0, 2_000, 64)))
    whole = shown(offered(pool, row("p", names[-2]), unhealthy={names[-1]: "ECC"}))
    listed = [each["id"] for each in whole["devices"]]
    assert listed == sorted(listed)
    assert {names[-1], names[-2], names[0]} <= {*listed}
