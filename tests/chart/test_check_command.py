"""`helm test`, on a real API server with its own account: a table of the components, and what is wrong in words."""

import pytest
from nodedevice_api import names
from nodedevice_operator import __version__
from nodedevice_operator.cli.crds import NAMES

from tests.chart.values import Command
from tests.cluster.chart import SYSTEM_NAMESPACE, install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.integration.operator_process import OperatorProcess, PlayedNode

pytestmark = pytest.mark.cluster


def rows(output: str) -> dict[tuple[str, str], tuple[str, str]]:
    """By what and name: ok or NO, and what it says."""
    found = {}
    table = [line for line in output.splitlines() if not line.startswith("waiting up to ")]
    for line in table[1:]:
        verdict, what, name, message = line.split(maxsplit=3)
        found[what, name] = verdict, message
    return found


def test_all_is_well(operator: OperatorProcess, node: PlayedNode, as_hook: Command) -> None:
    status, output = as_hook("check", "--wait-seconds", "30")
    assert status == 0, output
    found = rows(output)
    assert {verdict for verdict, _ in found.values()} == {"ok"}
    for name in NAMES:
        assert found["kind", name] == ("ok", f"is served, of release {__version__}")
    assert [message for (what, _), (_, message) in found.items() if what == "operator"] == ["leads"]
    assert found["agents", "-"] == ("ok", "1 renew their Leases")
    assert found["NodeDevice", node.nd_name()] == ("ok", "3 of 3 available, Ready")


def test_nothing_installed_is_reported_too(installed: ControlPlane, as_hook: Command) -> None:
    installed.kubectl("delete", "crd", *NAMES)
    installed.kubectl("delete", "lease", names.OPERATOR_LEASE, "-n", SYSTEM_NAMESPACE, "--ignore-not-found")
    try:
        status, output = as_hook("check", "--wait-seconds", "0")
        assert status == 1
        found = rows(output)
        assert all(found["kind", name][0] == "NO" and "crds apply" in found["kind", name][1] for name in NAMES)
        assert found["operator", "-"][1].startswith("none leads")
        assert found["agents", "-"] == ("NO", "0 renew their Leases; check the agents' pods and logs")
    finally:
        install_chart(installed)
