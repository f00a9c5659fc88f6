"""The status of a scenario as an agent shows it, checked against the CRD's rules and etcd's bound."""

import json
from typing import Any

from tests.unit.node_agent.devicemanager.scenario import Scenario
from tests.unit.node_agent.devicemanager.scenario import status as status_of
from tests.unit.node_agent.kube import crd_rules

Json = dict[str, Any]

MONDAY, TUESDAY = "2026-01-05T00:00:00Z", "2026-01-06T00:00:00Z"
# etcd's bound is 1.5 MiB; the operator's part and the metadata need room as well
MAX_OBJECT_BYTES = 1024 * 1024


def status(scenario: Scenario, before: Json | None = None, wall_time: str = MONDAY, **more: Any) -> Json:
    """The status, which the API server would take."""
    shown = status_of(scenario, before or {}, wall_time, **more)
    found = crd_rules.problems(shown)
    assert not found, found
    assert len(json.dumps(shown)) <= MAX_OBJECT_BYTES
    return shown


def condition(shown: Json, kind: str) -> tuple[str, str, str]:
    (found,) = (c for c in shown["conditions"] if c["type"] == kind)
    return found["status"], found["reason"], found["message"]
