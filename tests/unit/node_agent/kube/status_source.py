"""A StatusSource for tests of NodeDevice: the same status always, and no disk."""

from typing import Any


class FixedStatus:
    def __init__(self, **numbers: int) -> None:
        self.status: dict[str, Any] = {**numbers, "conditions": []}

    async def saved(self) -> None:
        """Nothing is ever unsaved."""

    def desired_status(self, resource_name: str, observed: dict[str, Any], wall_time: str) -> dict[str, Any]:
        return self.status

    def cordoned(self, resource_name: str, device_ids: frozenset[str]) -> None:
        """Cordons decide nothing here."""
