"""Kinds that only `why` reads: claims, classes, slices, Events. As in `objects`, each `…_of` never fails. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kubectl_nodedevice.cluster import NO_CONDITION, Condition, Json, Meta, Taint
from kubectl_nodedevice.fields import each_of, is_set, list_of, map_of, number_of, text_of, value_at
from kubectl_nodedevice.objects import conditions_of, meta_of, taint_of

# an expression that is this comparison, or holds for nothing without it
_DRIVER: Final = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']""")


@dataclass(frozen=True, slots=True)
class Event:
    """at: when it was last seen."""

    about_kind: str = ""
    about_name: str = ""
    about_uid: str = ""
    reason: str = ""
    message: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """driver: the one whose devices it can be; "" where its selectors do not show that."""

    name: str
    extended_resource: str = ""
    driver: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a claim. classes: each of them would do. count: 0 where it asks for all. is_tolerant: of some taints."""

    classes: tuple[str, ...]
    count: int = 1
    is_admin: bool = False
    is_tolerant: bool = False


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    """devices: (driver, pool, device) of its allocation. node_selector: of the allocation, as it is. reserved_for: UIDs."""

    meta: Meta
    requests: tuple[Request, ...] = ()
    is_allocated: bool = False
    devices: tuple[tuple[str, str, str], ...] = ()
    node_selector: Json = field(default_factory=dict)
    reserved_for: tuple[str, ...] = ()

    @property
    def holder(self) -> str:
        """The pod that it was made for, or the claim itself."""
        kind, _, name = self.meta.owner.partition("/")
        return f"{self.meta.namespace}/{name}" if kind == "Pod" else f"claim {self.meta.namespace}/{self.meta.name}"


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """is_shared: how much of it is free is not for us to count, as it is divided by the scheduler."""

    name: str
    taints: tuple[Taint, ...] = ()
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Slice:
    """node: "" where it is not of one node alone. generation: of its pool, of which the newest counts. count: of its slices."""

    driver: str
    pool: str
    generation: int = 0
    node: str = ""
    devices: tuple[SliceDevice, ...] = ()
    count: int = 1

    @property
    def whole_pool(self) -> tuple[str, str]:
        """By driver and name, as two drivers may have one of the same name."""
        return self.driver, self.pool


@dataclass(frozen=True, slots=True)
class Workload:
    """Kueue's object of a pod, of a group of pods or of a Job. owners: UIDs. checks: of admission, that are not Ready, in words."""

    meta: Meta
    owners: tuple[str, ...] = ()
    is_active: bool = True
    queue: str = ""
    checks: tuple[str, ...] = ()
    conditions: Mapping[str, Condition] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """Why it is not admitted, as Kueue says it."""
        quota = self.conditions.get("QuotaReserved", NO_CONDITION)
        admitted = self.conditions.get("Admitted", NO_CONDITION)
        if not self.is_active:
            return "it is not active (spec.active is false)"
        if admitted.status == "True":
            return "it is admitted, and Kueue has not let the pod go yet"
        if quota.status == "True":
            return "; ".join(self.checks) or admitted.message or "its admission checks are not Ready"
        return quota.message or f"queue {self.queue} has not decided about it yet"


def event_of(obj: Json) -> Event:
    about = map_of(obj, "involvedObject")
    series = text_of(obj, "series", "lastObservedTime")
    at = (
        series
        or text_of(obj, "lastTimestamp")
        or text_of(obj, "eventTime")
        or text_of(obj, "metadata", "creationTimestamp")
    )
    return Event(
        text_of(about, "kind"),
        text_of(about, "name"),
        text_of(about, "uid"),
        text_of(obj, "reason"),
        text_of(obj, "message"),
        at,
    )


def class_of(obj: Json) -> DeviceClass:
    expressions = [text_of(each, "cel", "expression").strip() for each in list_of(obj, "spec", "selectors")]
    drivers = {driver for each in expressions if (driver := _driver_in(each))}
    name, resource = text_of(obj, "metadata", "name"), text_of(obj, "spec", "extendedResourceName")
    return DeviceClass(name, resource, drivers.pop() if len(drivers) == 1 else "")


def _driver_in(expression: str) -> str:
    """The driver without which the expression is never true; "" where that cannot be seen without evaluating it."""
    if any(each in expression for each in ("||", "?", "!")):
        return ""
    found = [match.group(1) for part in expression.split("&&") if (match := _DRIVER.fullmatch(part.strip()))]
    return found[0] if len(found) == 1 else ""


def claim_of(obj: Json) -> ResourceClaim:
    allocation = map_of(obj, "status", "allocation")
    results = list_of(allocation, "devices", "results")
    return ResourceClaim(
        meta_of(obj),
        each_of(_request, obj, "spec", "devices", "requests"),
        bool(allocation),
        tuple((text_of(r, "driver"), text_of(r, "pool"), text_of(r, "device")) for r in results if not _is_admin(r)),
        map_of(allocation, "nodeSelector"),
        tuple(text_of(each, "uid") for each in list_of(obj, "status", "reservedFor")),
    )


def _request(obj: Json) -> Request:
    exactly = map_of(obj, "exactly")
    if not exactly:
        choices = list_of(obj, "firstAvailable")
        counts = [_count(each) for each in choices]
        # which of them it becomes is the scheduler's choice: the least that one of them needs
        is_tolerant = any(list_of(each, "tolerations") for each in choices)
        names = tuple(text_of(each, "deviceClassName") for each in choices)
        return Request(names, min(counts, default=0), is_tolerant=is_tolerant)
    return Request(
        (text_of(exactly, "deviceClassName"),),
        _count(exactly),
        _is_admin(exactly),
        bool(list_of(exactly, "tolerations")),
    )


def _count(obj: Json) -> int:
    return 0 if text_of(obj, "allocationMode") == "All" else max(number_of(obj, "count"), 1)


def _is_admin(obj: Any) -> bool:
    return is_set(obj, "adminAccess")


def slice_of(obj: Json) -> Slice:
    return Slice(
        text_of(obj, "spec", "driver"),
        text_of(obj, "spec", "pool", "name"),
        number_of(obj, "spec", "pool", "generation"),
        text_of(obj, "spec", "nodeName"),
        each_of(_slice_device, obj, "spec", "devices"),
        number_of(obj, "spec", "pool", "resourceSliceCount"),
    )


def _slice_device(obj: Json) -> SliceDevice:
    is_shared = is_set(obj, "allowMultipleAllocations") or bool(list_of(obj, "consumesCounters"))
    return SliceDevice(text_of(obj, "name"), each_of(taint_of, obj, "taints"), is_shared)


def workload_of(obj: Json) -> Workload:
    checks = [each for each in list_of(obj, "status", "admissionChecks") if text_of(each, "state") != "Ready"]
    return Workload(
        meta_of(obj),
        tuple(text_of(each, "uid") for each in list_of(obj, "metadata", "ownerReferences")),
        value_at(obj, "spec", "active") is not False,
        text_of(obj, "spec", "queueName"),
        tuple(f"{text_of(each, 'name')}: {text_of(each, 'message') or text_of(each, 'state')}" for each in checks),
        conditions_of(obj),
    )
