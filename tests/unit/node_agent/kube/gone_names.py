"""A node whose plugins have ended a while ago, more of them than keep their watches."""

from typing import Any

from nodedevice_agent.kube.parked import GONE_SECONDS, MOST_WATCHED

from tests.unit.node_agent.devicemanager.scenario import Scenario

NAMES = [f"example.com/r{number:02}" for number in range(MOST_WATCHED + 2)]
LAST = NAMES[-1]


def gone(**options: Any) -> Scenario:
    """Plugins of all names that ended a while ago."""
    scenario = Scenario(**options)
    scenario.manager.places.are_pods_known = True
    for endpoint, name in enumerate(NAMES, start=1):
        scenario.plugin(1, name, endpoint)
        scenario.happens("table.cordoned", name, "uid", {})
        scenario.disconnect(name, endpoint)
    scenario.passes(GONE_SECONDS)
    return scenario
