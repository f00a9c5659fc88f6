"""Parts of physical devices that containers of a pod need: units, and percent of the multiprocessors."""

from collections.abc import Iterable, Mapping
from typing import Final

from nodedevice_api.parts import PartRules, Placement
from nodedevice_kube.planner import Need

ALL_PERCENT: Final = 100


def container_percent(parts: int, annotated: int | None, sm_percent: int) -> int:
    """Percent of a physical device's multiprocessors for a container with `parts` of it; 0: no limit."""
    return annotated if annotated is not None else min(ALL_PERCENT, sm_percent * parts)


def planned(
    containers: tuple[Need, ...], rules: PartRules, annotated: int | None, sm_percent: int | None
) -> tuple[Need, ...]:
    """Adds percent to the needs. sm_percent: for each part without an annotation; None if multiprocessors are not limited."""
    if sm_percent is None:
        return containers
    is_single = rules.placement is Placement.SAME_PARENT
    return tuple(
        each._replace(percent=container_percent(each.count if is_single else 1, annotated, sm_percent))
        for each in containers
    )


def taken(containers: Iterable[Need], assigned: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """By parent: the parts of the pod; parts that containers reuse from init containers count once."""
    reusable: dict[str, int] = {}
    found: dict[str, int] = {}
    for each in containers:
        for parent, count in assigned[each.container].items():
            reused = min(count, reusable.get(parent, 0))
            found[parent] = found.get(parent, 0) + count - reused
            reusable[parent] = reusable.get(parent, 0) + (count - reused if each.is_init else -reused)
    return found
