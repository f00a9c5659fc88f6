"""What the shipped dashboards and rules ask of Prometheus, with Grafana's variables filled in as Grafana does for "All"."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "charts" / "nodedevice"
RULES = CHART / "rules" / "nodedevice.yaml"
_LABEL_VALUES = re.compile(r"label_values\((?P<series>.+), (?P<label>\w+)\)")
# longer than the test: everything that was counted counts
_WINDOW = "10m"

Json = dict[str, Any]


def dashboards() -> dict[str, Json]:
    """By file name, as they are checked in."""
    return {path.name: json.loads(path.read_text()) for path in sorted((CHART / "dashboards").glob("*.json"))}


def of_programs() -> dict[str, Json]:
    """Those that ask for what agents, operator and extender serve."""
    return {name: board for name, board in dashboards().items() if name not in of_status()}


def of_status() -> dict[str, Json]:
    """Those that ask for what kube-state-metrics makes of the API."""
    return {name: board for name, board in dashboards().items() if name.startswith("status-")}


def panels(board: Json) -> Iterator[Json]:
    """Those that ask something; rows do not."""
    yield from (panel for panel in board["panels"] if panel["type"] != "row")


def variables(board: Json) -> Iterator[Json]:
    yield from board["templating"]["list"]


def label_values(variable: Json) -> tuple[str, str]:
    """The label and the series that a query variable takes its values from."""
    match = _LABEL_VALUES.fullmatch(variable["query"]["query"])
    assert match, variable
    return match["label"], filled(match["series"])


def filled(expr: str) -> str:
    """The query as Grafana sends it where every variable is All."""
    sent = expr.replace("$__rate_interval", _WINDOW).replace("$__range", _WINDOW)
    return re.sub(r"\$(cluster|resource|node|namespace)\b", ".*", sent)


def rules() -> Json:
    """The rule file."""
    read: Json = yaml.safe_load(RULES.read_text())
    return read


def alerts() -> list[Json]:
    return [rule for group in rules()["groups"] for rule in group["rules"]]


def impatient(read: Json) -> Json:
    """The same rules, each of which fires as soon as its expression holds."""
    for group in read["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    return read
