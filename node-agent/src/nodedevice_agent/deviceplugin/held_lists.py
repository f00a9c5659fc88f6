"""Holds device lists that were refused for lack of room: most plugins send a list once, and it is accepted when there is room.

The lists are compressed, because they wait for minutes or days: to a tenth with numbered IDs.
"""

import zlib
from functools import partial

from nodedevice_api.extended_resources import domain_of
from nodedevice_common.threads import in_thread_if

# The limits of all plugins together, and of the plugins of one domain. A larger list is not held; it counts when it comes again.
MAX_HELD_BYTES = 16 * 1024 * 1024
MAX_HELD_BYTES_OF_DOMAIN = 12 * 1024 * 1024
# a shorter list is compressed within a millisecond
_MAX_BYTES_IN_LOOP = 32 * 1024

# the domain of the resource name, and the compressed list
HeldList = tuple[str, bytes]


async def hold(held: dict[int, HeldList], endpoint: int, resource_name: str, octets: bytes) -> bool:
    """Replace the connection's held list, by its endpoint. Returns whether there is room."""
    held.pop(endpoint, None)
    packed = await in_thread_if(len(octets) > _MAX_BYTES_IN_LOOP, partial(zlib.compress, octets, zlib.Z_BEST_SPEED))
    domain = domain_of(resource_name)
    in_all = sum(len(other) for _, other in held.values())
    of_domain = sum(len(other) for its, other in held.values() if its == domain)
    if in_all + len(packed) > MAX_HELD_BYTES or of_domain + len(packed) > MAX_HELD_BYTES_OF_DOMAIN:
        return False
    held[endpoint] = domain, packed
    return True
