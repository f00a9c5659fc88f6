"""Values that go into pods as they stand: what the API server or a program would refuse later, helm refuses, by its name.

An install that the API server ends halfway leaves a release behind, whose name cannot be used again.
"""

from typing import Any

import pytest

from hack.install import given_values
from tests.chart.rendering import refusal, render

pytestmark = pytest.mark.cluster

Values = dict[str, Any]


def tolerated(**more: Any) -> Values:
    return {"agents": {"tolerations": [more]}}


def env(*variables: Values, of: str = "agents") -> Values:
    return {of: {"env": list(variables)}}


def volumes(*more: Values) -> Values:
    return {"agents": {"extraVolumes": list(more)}}


def mounted(path: str, name: str = "more") -> Values:
    volume = {"name": "more", "hostPath": {"path": "/opt"}}
    return {"agents": {"extraVolumes": [volume], "extraVolumeMounts": [{"name": name, "mountPath": path}]}}


def resources(**more: Any) -> Values:
    return {"agents": {"resources": more}}


REFUSED = {
    "the chart's checksum": (
        {"agents": {"podAnnotations": {"checksum/config": "x"}}},
        "at '/agents/podAnnotations/checksum~1config'",
    ),
    "seconds without an effect": (
        tolerated(operator="Exists", tolerationSeconds=3),
        "at '/agents/tolerations/0': missing property 'effect'",
    ),
    "a limit below the default request": (
        resources(limits={"memory": "64Mi"}),
        "agents.resources.limits.memory is 64Mi, less than agents.resources.requests.memory, which is 112Mi",
    ),
    "a request above the default limit": (
        {"operator": {"resources": {"requests": {"memory": "0.6e9"}}}},
        "operator.resources.limits.memory is 512Mi, less than operator.resources.requests.memory, which is 0.6e9",
    ),
    "cores and thousandths": (
        resources(limits={"cpu": 1}, requests={"cpu": "1001m"}),
        "agents.resources.limits.cpu is 1, less than agents.resources.requests.cpu, which is 1001m",
    ),
    "a setting": (
        env({"name": "NODEDEVICE_DELIVERY", "value": "docker"}),
        "agents.env: NODEDEVICE_DELIVERY is a setting of the program: set agents.config.delivery instead",
    ),
    "a variable twice": (env({"name": "A"}, {"name": "B"}, {"name": "A"}), "agents.env: A is there twice"),
    "the volume of the settings": (
        volumes({"name": "config", "emptyDir": {}}),
        "agents.extraVolumes: config is the name of one of the agent's own volumes",
    ),
    "a volume twice": (
        volumes({"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}),
        "agents.extraVolumes: a is the name of two volumes",
    ),
    "a mount without a volume": (mounted("/host", "mor"), "agents.extraVolumeMounts: there is no volume mor"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    values, sentence = REFUSED[name]
    assert sentence in refusal(values)


def test_the_hooks_have_the_operators_variables_without_an_operator() -> None:
    twice = {"operator": {"enabled": False, "env": [{"name": "A"}, {"name": "A"}]}}
    assert "operator.env: A is there twice" in refusal(twice)


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/", "/bin"),
        ("/opt/nodedevice/more", "/opt/nodedevice"),
        ("/var/lib", "/var/lib/nodedevice"),
        ("/var/run", "/var/run/secrets"),
    ],
)
def test_nothing_is_mounted_over_what_the_agent_needs(path: str, own: str) -> None:
    assert f"would hide the agent's own {own}: choose another mountPath" in refusal(mounted(path))


@pytest.mark.parametrize("path", ["/dev", "/etc/nodedevice/"])
def test_nothing_is_mounted_where_something_is(path: str) -> None:
    assert f"something is mounted at {path} already" in refusal(mounted(path))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"agents": {"nodeSelector": {f"{'a.' * 125}bc/x": "b" * 63, "A_b.c": ""}}}, id="labels"),
        pytest.param(tolerated(operator="Exists"), id="everything"),
        pytest.param(tolerated(operator="Exists", effect="NoExecute", tolerationSeconds=3), id="for some time"),
        pytest.param(resources(limits={"memory": "114688Ki", "cpu": "0.02"}), id="as much as is asked for"),
        pytest.param(env({"name": "A"}, {"name": "NVIDIA_A", "valueFrom": {"secretKeyRef": {}}}), id="variables"),
        pytest.param(volumes({"name": "a"}, {"name": "b", "image": {"reference": "x"}}), id="volumes"),
        pytest.param(mounted("/host-dev", "dev"), id="a volume of the agent's own, once more"),
        pytest.param({"agents": {"enabled": False, "env": [{"name": "A"}, {"name": "A"}]}}, id="agents left out"),
    ],
)
def test_taken(values: Values) -> None:
    """By Helm, and by what checks values without it."""
    assert render(values)
    assert given_values.problems(values) == []
