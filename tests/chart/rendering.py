"""What helm makes of the chart and some values: each question is asked once a run, and whoever asks it again has that answer.

Most of the time of these tests is that of helm, and they ask for the same few sets of values again and again.
"""

import copy
import json
import subprocess
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from tests.chart.values import VALUE_SETS
from tests.cluster.chart import CHART, SYSTEM_NAMESPACE, TEMPLATE, is_hook, manifests_of, run_helm
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.errors import CommandError

Values = Mapping[str, Any]
Manifests = list[dict[str, Any]]
Answer = subprocess.CompletedProcess[str]

WORK = {"DaemonSet", "Deployment", "Job", "Pod"}


def ask_helm(arguments: tuple[str, ...], values: Values | None = None) -> Answer:
    """Exit status and output of helm with these arguments and values; nothing of it is to depend on a cluster."""
    return _asked(arguments, json.dumps(dict(values or {})))


@cache
def _asked(arguments: tuple[str, ...], values: str) -> Answer:
    return run_helm(arguments, json.loads(values))


def render(values: Values | None = None, *flags: str) -> Manifests:
    """Every manifest of the chart, which is the caller's to change. Raises CommandError with helm's message."""
    return copy.deepcopy(_rendered((*TEMPLATE, *flags), json.dumps(dict(values or {}))))


@cache
def _rendered(arguments: tuple[str, ...], values: str) -> Manifests:
    return manifests_of(_asked(arguments, values))


def manifests(name: str = "defaults") -> Manifests:
    """The same, of one of VALUE_SETS."""
    return render(VALUE_SETS[name])


def hook_manifests(name: str, values: Values | None = None) -> Manifests:
    """The hook's account, roles and bindings, as Helm makes them before it runs."""
    found = [each for each in render(values) if is_hook(each) and each["metadata"]["name"] == name]
    assert found, f"the chart has no hook {name}"
    return [each for each in found if each["kind"] not in WORK]


def named(kind: str, name: str, values: Values | None = None, *flags: str) -> dict[str, Any]:
    """The one manifest of this kind and name."""
    [found] = [each for each in render(values, *flags) if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Its pod's spec."""
    spec: dict[str, Any] = manifest["spec"] if manifest["kind"] == "Pod" else manifest["spec"]["template"]["spec"]
    return spec


def agent_pod(values: Values | None = None) -> dict[str, Any]:
    return pod_of(named("DaemonSet", "nodedevice-agent", values))


def listed(cluster: ControlPlane, kinds: str) -> set[str]:
    """Everything of ours of these kinds in a cluster, in all namespaces, as Kind/name."""
    items = json.loads(cluster.kubectl("get", kinds, "--all-namespaces", "-o", "json"))["items"]
    found = {f"{each['kind']}/{each['metadata']['name']}" for each in items}
    return {each for each in found if "nodedevice" in each and "/nodedevice-test:" not in each}


def refusal(values: Values) -> str:
    """The error of helm when it refuses these values; fails when it takes them."""
    with pytest.raises(CommandError) as refused:
        render(values)
    return str(refused.value)


def notes(values: Values) -> str:
    """What an install prints last, for whoever typed it."""
    done = ask_helm(("install", "nodedevice", str(CHART), "--namespace", SYSTEM_NAMESPACE, "--dry-run=client"), values)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("NOTES:")[2]
