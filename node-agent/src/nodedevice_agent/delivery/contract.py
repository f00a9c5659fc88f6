"""Delivery: how the devices of a resource reach containers (runtime/backend, kubelet/backend, delivery/record_only).

New pods get the delivery of the resource. An allocation keeps the one that it was made by until its pod ends.
"""

import asyncio

from nodedevice_agent.devicemanager.snapshot import Snapshot


class Delivery:
    """The defaults suit a delivery that knows everything and injects nothing."""

    @property
    def is_settled(self) -> bool:
        """False while it does not know its own state yet: the last published status stays."""
        return True

    @property
    def notes(self) -> str:
        """A problem that an administrator should know of, or ""."""
        return ""

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Called before resources are published and plugins are served. Background work runs in tasks of that group."""

    def resource_changed(self, resource_name: str) -> None:
        """The resource's devices or allocations may have changed."""

    def resource_forgotten(self, resource_name: str) -> None:
        """Called when the resource is forgotten."""

    def not_injected(self, pod_uid: str, container: str, resource_name: str) -> bool:
        """Whether a container runs without this resource that it requested."""
        return False

    def injectable(self, now: Snapshot) -> tuple[str, str, str] | None:
        """Status, reason and message of the condition Injectable; None if the agent does not inject."""
        return None
