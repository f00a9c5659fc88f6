"""What containers of a pod take of physical devices: units, and percent of the multiprocessors."""

from collections.abc import Iterable, Mapping
from typing import Final

from nodedevice_api.parts import PartRules, Placement
from nodedevice_common.part_plan import Need

from nodedevice_operator.objects.bound_pod import ContainerNeed, PodNeeds, pod_needs

__all__ = ["ALL_PERCENT", "PodNeeds", "at_once", "container_percent", "obeys", "planned", "pod_needs", "taken"]

ALL_PERCENT: Final = 100


def at_once(containers: Iterable[ContainerNeed]) -> int:
    """How many parts the pod has at one time, at the most."""
    stays = most = 0
    for each in containers:
        most = max(most, stays + each.count)
        stays += 0 if each.is_init else each.count
    return most


def container_percent(parts: int, annotated: int | None, sm_percent: int) -> int:
    """Of a physical device's multiprocessors, for a container with so many parts of it; 0: no limit."""
    return annotated if annotated is not None else min(ALL_PERCENT, sm_percent * parts)


def planned(
    containers: Iterable[ContainerNeed], rules: PartRules, annotated: int | None, sm_percent: int | None
) -> tuple[Need, ...]:
    """The needs to plan for. sm_percent: for each part without an annotation; None where multiprocessors are not limited."""
    is_single = rules.placement is Placement.SAME_PARENT
    return tuple(
        Need(
            each.count,
            each.is_init,
            percent=0
            if sm_percent is None
            else container_percent(each.count if is_single else 1, annotated, sm_percent),
        )
        for each in containers
    )


def taken(containers: Iterable[ContainerNeed], assigned: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """By parent: the parts that the pod has then, those that containers reuse of init containers counted once."""
    reusable: dict[str, int] = {}
    found: dict[str, int] = {}
    for each in containers:
        for parent, count in assigned[each.container].items():
            reused = min(count, reusable.get(parent, 0))
            found[parent] = found.get(parent, 0) + count - reused
            reusable[parent] = reusable.get(parent, 0) + (count - reused if each.is_init else -reused)
    return found


def obeys(rules: PartRules, containers: Iterable[ContainerNeed], assigned: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether the assignment has the parts that each container requests, as the rules want them."""
    for each in containers:
        parts = assigned.get(each.container, {})
        if sum(parts.values()) != each.count:
            return False
        if rules.placement is Placement.SAME_PARENT and len(parts) != 1:
            return False
        if rules.placement is Placement.DISTINCT_PARENTS and len(parts) != each.count:
            return False
    return True
