"""A kube-state-metrics of our own, as far as its documentation goes: the schema of its configuration, what it makes of objects.

It stands in where the real one cannot be had, so it is strict: a key that is not documented and a value that is not a number are
errors here, as is what our configuration does not need and this does not know. Fields and conversions: kube-state-metrics' page
on custom resource state, and the types of its configuration (v2.17).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

Path = list[str]
_WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0, "unknown": 0.0}


class _Strict(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A key that is not documented is an error: the real one skips it without a word."""


class GroupVersionKind(_Strict):
    group: str
    version: str
    kind: str


class Gauge(_Strict):
    path: Path
    labels_from_path: dict[str, Path] = {}
    label_from_key: str = ""
    value_from: Path = []
    nil_is_zero: bool = False


class Info(_Strict):
    path: Path
    labels_from_path: dict[str, Path] = {}
    label_from_key: str = ""


class StateSet(_Strict):
    path: Path
    label_name: str
    list: list[str]
    labels_from_path: dict[str, Path] = {}
    value_from: Path = []


class Each(_Strict):
    type: Literal["Gauge", "Info", "StateSet"]
    gauge: Gauge | None = None
    info: Info | None = None
    state_set: StateSet | None = None


class Metric(_Strict):
    name: str
    help: str
    each: Each
    common_labels: dict[str, str] = {}
    labels_from_path: dict[str, Path] = {}
    error_log_v: int = 0


class Resource(_Strict):
    group_version_kind: GroupVersionKind
    metrics: list[Metric]
    metric_name_prefix: str = "kube_customresource"
    resource_plural: str = ""
    common_labels: dict[str, str] = {}
    labels_from_path: dict[str, Path] = {}
    error_log_v: int = 0


class Spec(_Strict):
    resources: list[Resource]


class Config(_Strict):
    kind: Literal["CustomResourceStateMetrics"]
    spec: Spec


@dataclass(frozen=True)
class Sample:
    name: str
    labels: Mapping[str, str]
    value: float


def read(text: str) -> Config:
    """Raises msgspec.ValidationError for what is not in the documented schema."""
    return msgspec.yaml.decode(text, type=Config)


def samples(resource: Resource, objects: Iterable[Mapping[str, Any]]) -> Iterator[Sample]:
    """Of all these objects. A list at a path gives one for each element. Raises ValueError."""
    for each in objects:
        for metric in resource.metrics:
            base = dict(resource.common_labels | metric.common_labels)
            base |= _labels(each, resource.labels_from_path | metric.labels_from_path)
            for labels, value in _values(metric.each, each):
                yield Sample(f"{resource.metric_name_prefix}_{metric.name}", base | labels, value)


class Exposition(Collector):
    """What it serves of these objects, for prometheus_client. objects: by kind."""

    def __init__(self, config: Config, objects: Mapping[str, list[Mapping[str, Any]]]) -> None:
        self._config = config
        self._objects = objects

    def collect(self) -> Iterator[Family]:
        for resource in self._config.spec.resources:
            about = resource.group_version_kind
            # it adds these to all series of custom resources
            kind = {"customresource_group": about.group, "customresource_kind": about.kind}
            kind["customresource_version"] = about.version
            families: dict[str, Family] = {}
            for one in samples(resource, self._objects[about.kind]):
                family = families.setdefault(one.name, Family(one.name, "", "gauge"))
                family.add_sample(one.name, {**one.labels, **kind}, one.value)
            yield from families.values()


def found(obj: Any, path: Path) -> Any:
    """What is at the path; None where any part of it is missing. Only keys: these paths need no more."""
    for part in path:
        obj = obj.get(part) if isinstance(obj, Mapping) else None
    return obj


def number(value: Any) -> float:
    """Raises ValueError for what is none to kube-state-metrics either."""
    if isinstance(value, (bool, int, float)):
        return float(value)
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a number")
    if value.lower() in _WORDS:
        return _WORDS[value.lower()]
    # of the forms that Python reads, RFC 3339 has this one alone: a number of bytes is no day
    return datetime.fromisoformat(value).timestamp() if "T" in value else float(value)


def _values(each: Each, obj: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], float]]:
    match each:
        case Each(type="Gauge", gauge=Gauge() as gauge):
            value = found(obj, gauge.path)
            if value is None and gauge.nil_is_zero:
                yield {}, 0.0
            if isinstance(value, Mapping):
                raise ValueError(f"{gauge.path} is an object: the real one makes a series of each of its keys")
            for element in _elements(value):
                found_value = found(element, gauge.value_from)
                # nothing there, no series: such as the moment of an allocation that has none
                if found_value is not None or gauge.nil_is_zero:
                    yield _labels(element, gauge.labels_from_path), number(found_value or 0)
        case Each(type="Info", info=Info() as info):
            for element in _elements(found(obj, info.path)):
                yield _labels(element, info.labels_from_path), 1.0
        case Each(type="StateSet", state_set=StateSet() as states):
            for element in _elements(found(obj, states.path)):
                value = found(element, states.value_from)
                for state in states.list:
                    yield {states.label_name: state}, float(value == state)
        case _:
            raise ValueError(f"type {each.type} without what belongs to it")


def _elements(value: Any) -> list[Any]:
    """Nothing where there is nothing at the path."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _labels(obj: Any, paths: Mapping[str, Path]) -> dict[str, str]:
    """A label whose path finds nothing is left out."""
    values = {label: found(obj, path) for label, path in paths.items()}
    return {label: str(value) for label, value in values.items() if value is not None}
