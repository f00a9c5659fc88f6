"""Invalidates recorded responses after a boot of the node. Pure.

The kernel numbers devices again, and a GPU driver numbers its files again. An earlier response of a built-in plugin may therefore
name other devices now. The responses of other plugins are kept, as in the kubelet.
"""

from collections.abc import Callable

from msgspec import structs

from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN


def after_boot(checkpoint: Checkpoint, may_be_built_in: Callable[[str], bool]) -> Checkpoint:
    """Let Allocate be called again for built-in plugins. may_be_built_in: by resource name; an older agent recorded no scope."""

    def is_built_in(allocation: Allocation) -> bool:
        scope = checkpoint.scopes.get(allocation.resource_name)
        return may_be_built_in(allocation.resource_name) if scope is None else scope.startswith(BUILT_IN)

    kept = (
        structs.replace(a, response=None, edits=None, files=()) if is_built_in(a) else a for a in checkpoint.allocations
    )
    identities = {
        name: {device_id: identity.after_boot() for device_id, identity in of_resource.items()}
        for name, of_resource in checkpoint.identities.items()
    }
    return structs.replace(checkpoint, allocations=tuple(kept), identities=identities)
