"""The configuration for kube-state-metrics: it keeps to the documented schema, and each path is one of our CRDs'."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from nodedevice_api import names

from tests.monitoring import kube_state_metrics as ksm
from tests.monitoring import status_objects

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "charts" / "nodedevice" / "kube-state-metrics" / "nodedevice.yaml"
_KINDS = {names.NODE_DEVICE: names.NODE_DEVICES, names.POD_DEVICE: names.POD_DEVICES}
# of every object, and in no CRD's schema
_METADATA = ("name", "namespace", "creationTimestamp")


def resources() -> list[ksm.Resource]:
    return ksm.read(CONFIG.read_text()).spec.resources


def test_it_is_about_our_kinds() -> None:
    for resource in resources():
        about = resource.group_version_kind
        assert (about.group, about.version) == (names.GROUP, names.VERSION)
        assert resource.resource_plural == _KINDS[about.kind]
    assert len(resources()) == len(_KINDS)


def test_names_are_unique_and_info_is_called_info() -> None:
    for resource in resources():
        metrics = [metric.name for metric in resource.metrics]
        assert len(set(metrics)) == len(metrics)
        for metric in resource.metrics:
            assert metric.name.endswith("info") == (metric.each.type == "Info"), metric.name


@pytest.mark.parametrize("resource", resources(), ids=lambda resource: resource.group_version_kind.kind)
def test_every_path_is_in_the_crd(resource: ksm.Resource) -> None:
    crd = yaml.safe_load((ROOT / "crds" / f"{resource.resource_plural}.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["metadata"] = {"properties": {key: {} for key in _METADATA}}
    for path in _paths(resource):
        at = schema
        for part in path:
            at = at.get("items", at)
            at = at.get("properties", {}).get(part, at.get("additionalProperties"))
            assert at is not None, f"{resource.group_version_kind.kind} has no {'.'.join(path)}: {part}"


@pytest.mark.parametrize("resource", resources(), ids=lambda resource: resource.group_version_kind.kind)
def test_each_metric_has_a_series(resource: ksm.Resource) -> None:
    """Each path finds something in records of the API; test_status_dashboards compares most numbers."""
    objects = {names.NODE_DEVICE: status_objects.node_devices(), names.POD_DEVICE: status_objects.pod_devices()}
    found = {one.name for one in ksm.samples(resource, objects[resource.group_version_kind.kind])}
    assert found == {f"{resource.metric_name_prefix}_{metric.name}" for metric in resource.metrics}


@pytest.mark.parametrize(
    ("metric", "number"),
    [
        ("waiting_pods", 3),
        ("parts_largest_available", 48),
        ("device_parts", 80),
        ("device_parts_allocated", 16),
        ("device_parts_available", 64),
        ("device_part_memory_bytes", 2**30),
    ],
)
def test_numbers_of_pending_pods_and_of_parts(metric: str, number: int) -> None:
    [resource] = [each for each in resources() if each.group_version_kind.kind == names.NODE_DEVICE]
    made = ksm.samples(resource, status_objects.node_devices())
    assert sum(one.value for one in made if one.name == f"kube_nodedevice_status_{metric}") == number


def _paths(resource: ksm.Resource) -> Iterator[ksm.Path]:
    """Every path that is looked up, from the object's root."""
    yield from resource.labels_from_path.values()
    for metric in resource.metrics:
        each = metric.each
        what = each.gauge or each.info or each.state_set
        assert what is not None
        yield what.path
        yield from ([*what.path, *label] for label in what.labels_from_path.values())
        if not isinstance(what, ksm.Info):
            yield [*what.path, *what.value_from]
