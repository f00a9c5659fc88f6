"""Records of kinds that only `why` reads: claims, classes, slices, Events. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from nodedevice_kube.fields import is_set, list_of, map_of, number_of, text_of

from kubectl_nodedevice.cluster import NO_CONDITION, Condition, Json, Meta, Taint, taints_of
from kubectl_nodedevice.records import place

# an expression that is this comparison, or that requires it
_DRIVER: Final = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']""")


def _last_seen(event: Json) -> str:
    return (
        text_of(event, "series", "lastObservedTime")
        or text_of(event, "lastTimestamp")
        or text_of(event, "eventTime")
        or text_of(event, "metadata", "creationTimestamp")
    )


@dataclass(frozen=True, slots=True)
class Event:
    """at: when it was last seen."""

    about_kind: str = place("involvedObject.kind")
    about_name: str = place("involvedObject.name")
    about_uid: str = place("involvedObject.uid")
    reason: str = ""
    message: str = ""
    at: str = place(by=_last_seen)


def _driver(selectors: Any) -> str:
    expressions = [text_of(each, "cel", "expression").strip() for each in list_of(selectors)]
    drivers = {driver for each in expressions if (driver := _driver_in(each))}
    return drivers.pop() if len(drivers) == 1 else ""


def _driver_in(expression: str) -> str:
    """Return the driver that the expression requires; "" if only an evaluation would show it."""
    if any(each in expression for each in ("||", "?", "!")):
        return ""
    found = [match.group(1) for part in expression.split("&&") if (match := _DRIVER.fullmatch(part.strip()))]
    return found[0] if len(found) == 1 else ""


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """driver: the only driver of its devices; "" if its selectors do not show it."""

    name: str = place("metadata.name")
    extended_resource: str = place("spec.extendedResourceName")
    driver: str = place("spec.selectors", by=_driver)


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a claim. classes: any of them suffices. count: 0 for all devices. is_tolerant: tolerates some taints."""

    classes: tuple[str, ...]
    count: int = 1
    is_admin: bool = False
    is_tolerant: bool = False


def _requests(found: Any) -> tuple[Request, ...]:
    return tuple(_request(each) for each in list_of(found) if isinstance(each, dict))


def _request(obj: Json) -> Request:
    exactly = map_of(obj, "exactly")
    if not exactly:
        choices = list_of(obj, "firstAvailable")
        counts = [_count(each) for each in choices]
        # The scheduler chooses one of them: the least that any of them needs.
        is_tolerant = any(list_of(each, "tolerations") for each in choices)
        names = tuple(text_of(each, "deviceClassName") for each in choices)
        return Request(names, min(counts, default=0), is_tolerant=is_tolerant)
    return Request(
        (text_of(exactly, "deviceClassName"),),
        _count(exactly),
        is_set(exactly, "adminAccess"),
        bool(list_of(exactly, "tolerations")),
    )


def _count(obj: Json) -> int:
    return 0 if text_of(obj, "allocationMode") == "All" else max(number_of(obj, "count"), 1)


def _devices(results: Any) -> tuple[tuple[str, str, str], ...]:
    """Leave out devices for administration, which others can have at the same time."""
    return tuple(
        (text_of(each, "driver"), text_of(each, "pool"), text_of(each, "device"))
        for each in list_of(results)
        if not is_set(each, "adminAccess")
    )


def _uids(found: Any) -> tuple[str, ...]:
    return tuple(text_of(each, "uid") for each in list_of(found))


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    """devices: (driver, pool, device) of its allocation. node_selector: of the allocation."""

    meta: Meta = place("metadata", Meta)
    requests: tuple[Request, ...] = place("spec.devices.requests", (), by=_requests)
    is_allocated: bool = place("status.allocation", False, by=bool)
    devices: tuple[tuple[str, str, str], ...] = place("status.allocation.devices.results", (), by=_devices)
    node_selector: Json = place("status.allocation.nodeSelector", dict)

    @property
    def holder(self) -> str:
        """The pod that owns it, or the claim itself."""
        kind, _, name = self.meta.owner.partition("/")
        return f"{self.meta.namespace}/{name}" if kind == "Pod" else f"claim {self.meta.namespace}/{self.meta.name}"


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """is_shared: the scheduler divides it; its free share is unknown here."""

    name: str = ""
    taints: tuple[Taint, ...] = place("taints", (), by=taints_of)
    is_shared: bool = place(
        default=False, by=lambda obj: is_set(obj, "allowMultipleAllocations") or bool(list_of(obj, "consumesCounters"))
    )


@dataclass(frozen=True, slots=True)
class Slice:
    """node: "" unless it belongs to one node. generation: of its pool; the newest counts. count: slices of the pool."""

    driver: str = place("spec.driver")
    pool: str = place("spec.pool.name")
    generation: int = place("spec.pool.generation", 0)
    node: str = place("spec.nodeName")
    devices: tuple[SliceDevice, ...] = place("spec.devices", ())
    count: int = place("spec.pool.resourceSliceCount", 1)

    @property
    def whole_pool(self) -> tuple[str, str]:
        """Two drivers may have pools of the same name."""
        return self.driver, self.pool


def _checks(found: Any) -> tuple[str, ...]:
    checks = [each for each in list_of(found) if text_of(each, "state") != "Ready"]
    return tuple(f"{text_of(each, 'name')}: {text_of(each, 'message') or text_of(each, 'state')}" for each in checks)


@dataclass(frozen=True, slots=True)
class Workload:
    """Kueue's object of a pod, a group of pods, or a Job. owners: UIDs. checks: admission checks that are not Ready, in words."""

    meta: Meta = place("metadata", Meta)
    owners: tuple[str, ...] = place("metadata.ownerReferences", (), by=_uids)
    is_active: bool = place("spec.active", True)
    queue: str = place("spec.queueName")
    checks: tuple[str, ...] = place("status.admissionChecks", (), by=_checks)
    conditions: Mapping[str, Condition] = place("status.conditions", dict)

    @property
    def words(self) -> str:
        """Kueue's reason for not admitting it."""
        quota = self.conditions.get("QuotaReserved", NO_CONDITION)
        admitted = self.conditions.get("Admitted", NO_CONDITION)
        if not self.is_active:
            return "it is not active (spec.active is false)"
        if admitted.status == "True":
            return "it is admitted, and Kueue has not let the pod go yet"
        if quota.status == "True":
            return "; ".join(self.checks) or admitted.message or "its admission checks are not Ready"
        return quota.message or f"queue {self.queue} has not decided about it yet"
