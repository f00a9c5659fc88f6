"""First-fit-decreasing: the placement if all pods were known before the first one comes, the largest first."""

from collections.abc import Iterable


def placed_units(pods: Iterable[int], devices: int, size: int) -> int:
    """How many units fit, for pods that need so many of one device each. size: units of a device."""
    free, placed = [size] * devices, 0
    for units in sorted(pods, reverse=True):
        at = next((i for i, left in enumerate(free) if left >= units), None)
        if at is not None:
            free[at] -= units
            placed += units
    return placed
