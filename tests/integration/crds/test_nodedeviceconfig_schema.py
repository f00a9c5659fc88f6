"""A mistyped key of a NodeDeviceConfig on a real API server, in each object, and what kubectl explains.

A client that validates strictly, as kubectl does, is refused it; to all others an agent refuses it.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from nodedevice_agent.configs.effective import Config, effective
from nodedevice_agent.plugins.settings import PluginSettings

from hack import yaml_text
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.errors import CommandError
from tests.cluster.waiting import wait_until
from tests.unit.api.test_config_schema import SCHEMAS

pytestmark = pytest.mark.cluster

NAME = "mistyped"
WRONG = "pollSecond"


def whole() -> dict[str, Any]:
    """With every object that there is, once."""
    parts = {"choice": "spread"}
    group = {"paths": [{"path": "/dev/ttyS0"}], "mounts": [{"hostPath": "/dev/null"}]}
    selected = {"select": {"usb": {"vendor": "0403"}}}
    limits: dict[str, Any] = {"memory": True}
    shares = {"replicas": 2, "mps": {"pipeDirectory": "/dev/mps"}, "limits": limits}
    sharing = [
        {"models": ["*T4*"], "shares": {**shares, "resourceName": "nvidia.com/part"}},
        {"models": ["*A2*"], "memory": {"unit": "2Gi", "limits": dict(limits)}},
        {"models": ["*H100*"], "whole": {"resourceName": "nvidia.com/whole"}},
    ]
    return {
        "generic": [{"resourceName": "example.com/serial", "groups": [group, selected], "parts": dict(parts)}],
        "simulated": [{"resourceName": "example.com/gpu", "parts": dict(parts)}],
        "nvml": {"sharing": sharing, "health": {"resetRequired": "ignore"}},
    }


def objects(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object in it, with the path of its schema."""
    if isinstance(value, dict):
        yield path, value
        for key, below in value.items():
            yield from objects(below, f"{path}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from objects(each, f"{path}[]")


def mistyped(path: str) -> str:
    """A manifest with a wrong key in the first object of that path."""
    spec = {"nodeSelector": {"pool": "a"}, "plugins": whole()}
    found = next(each for place, each in objects(spec) if place == path)
    found[WRONG] = 3
    kind = {"apiVersion": "nodedevice.io/v1alpha1", "kind": "NodeDeviceConfig", "metadata": {"name": NAME}}
    return yaml_text.dump({**kind, "spec": spec})


# a name of the user's own, as in a map, is no mistake
PATHS = sorted(["", *(f".plugins{path}" for path, schema in SCHEMAS.items() if "properties" in schema)])


@pytest.fixture(scope="module")
def held(installed: ControlPlane) -> ControlPlane:
    """With the policy in force: the API server takes a moment to notice a new one."""
    wait_until(lambda: WRONG in refused(installed, mistyped(".plugins.nvml")), "the policy is in force")
    return installed


def refused(cluster: ControlPlane, manifest: str, *options: str) -> str:
    """What kubectl says; empty if it is taken."""
    try:
        cluster.kubectl("apply", "--dry-run=server", "-f", "-", *options, stdin=manifest)
    except CommandError as error:
        return str(error)
    return ""


def test_every_object_is_tried() -> None:
    assert {path for path, _ in objects({"plugins": whole()})} == set(PATHS)


WAYS = [pytest.param([], id="apply"), pytest.param(["--server-side"], id="server-side")]


@pytest.mark.parametrize("options", WAYS)
def test_without_a_mistake_it_is_taken_and_no_agent_refuses_it(held: ControlPlane, options: list[str]) -> None:
    manifest = mistyped(".plugins.nvml").replace(f"{WRONG}: 3", "pollSeconds: 3")
    assert refused(held, manifest, *options) == ""
    assert refusal_of(yaml_text.load(manifest)["spec"]) == ""


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("path", PATHS)
def test_a_client_that_validates_strictly_is_refused_it(held: ControlPlane, path: str, options: list[str]) -> None:
    said = refused(held, mistyped(path), *options)
    assert f"unknown field spec{path}.{WRONG}" in without_indexes(said)
    assert ("or pollSeconds?" in said) == (path == ".plugins.nvml")


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("path", PATHS)
def test_to_one_that_does_not_an_agent_refuses_it(held: ControlPlane, path: str, options: list[str]) -> None:
    arguments = ("apply", "--dry-run=server", "--validate=false", "-o", "json", "-f", "-", *options)
    stored = yaml_text.load(held.kubectl(*arguments, stdin=mistyped(path)))["spec"]
    assert f"spec{path}.{WRONG}: unknown key" in without_indexes(refusal_of(stored))


def without_indexes(text: str) -> str:
    return re.sub(r"\[[0-9]+\]", "[]", text)


def refusal_of(spec: Any) -> str:
    config = Config(NAME, 1, plugins=msgspec.Raw(json.dumps(spec["plugins"])), keys=tuple(spec))
    return effective(PluginSettings(), [config], {}, ["/"]).outcomes[NAME].refusal


def test_every_field_is_explained(held: ControlPlane) -> None:
    for kind in ("generic", "simulated", "nvml"):
        shown = held.kubectl("explain", f"nodedeviceconfig.spec.plugins.{kind}", "--recursive")
        keys = {path.rpartition(".")[2] for path in SCHEMAS if path.startswith((f".{kind}.", f".{kind}[]."))}
        assert {key for key in keys if not key.endswith(("[]", "{}"))} <= set(shown.split())
    shown = held.kubectl("explain", "nodedeviceconfig.spec.plugins.nvml.pollSeconds")
    assert "How often each GPU is read" in " ".join(shown.split())
