"""A limit of a hundred devices on a node, of which a list of ten is always taken; for the test files that import `small_limit`.

from tests.unit.node_agent.devicemanager.small_limit import small_limit as small_limit
"""

from collections.abc import Iterable, Iterator
from unittest.mock import patch

import pytest
from nodedevice_agent.devicemanager.effects import Effect, TakeList
from nodedevice_agent.devicemanager.resources import list_limit

from tests.unit.node_agent.devicemanager.scenario import Scenario, status
from tests.unit.node_agent.kube import crd_rules

MOST, SMALL = 100, 10


@pytest.fixture(autouse=True)
def small_limit() -> Iterator[None]:
    with patch.multiple(list_limit, MAX_DEVICES=MOST, MAX_SMALL_LIST=SMALL):
        yield


def totals(scenario: Scenario) -> dict[str, int]:
    return {name: scenario.snapshot(name).total for name in scenario.manager.resources}


def taken(effects: Iterable[Effect]) -> list[TakeList]:
    return [effect for effect in effects if isinstance(effect, TakeList)]


def is_refused(scenario: Scenario, name: str) -> bool:
    assert crd_rules.problems(status(scenario, {}, "2026-01-05T00:00:00Z", name=name)) == []
    shown = scenario.registered(name)
    return (shown["status"], shown["reason"]) == ("True", "DevicesRefused")
