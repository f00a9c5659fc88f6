"""Derives the resource name of a DRA driver's pool, for its NodeDevice, from the driver's and the pool's name. Pure.

The node's name is left out, because most drivers name a pool after its node: `gpu.vendor.com/devices`. Eight or more digits of
a hash follow if the pool's name is invalid in a resource name, or if the name is taken. A driver's name may have capitals.
Source: k8s.io/kubernetes pkg/apis/storage/validation ValidateCSIDriverName @ 1.37.
"""

import hashlib
import re
from collections.abc import Callable
from typing import Final

from nodedevice_api import extended_resources
from nodedevice_api.names import DRA_DRIVER

from nodedevice_agent.dra.devices import PoolKey

# the API server's, and the CRD's
MAX_DRIVER: Final = 63
MAX_POOL: Final = 253
# the name of a pool that is named after the node
DEVICES: Final = "devices"
_MAX: Final = 63
_DIGITS: Final = (8, 16, 32)
_SEPARATORS: Final = "-./"
_NOT_IN_A_NAME: Final = re.compile(r"[^-A-Za-z0-9_.]")


def is_observed(key: PoolKey) -> bool:
    """Whether the pool is shown. Pools of our own driver are not: they are made from NodeDevices."""
    driver, pool = key
    is_name = len(driver) <= MAX_DRIVER and extended_resources.DOMAIN.fullmatch(domain(driver)) is not None
    return is_name and driver != DRA_DRIVER and 0 < len(pool) <= MAX_POOL


def domain(driver: str) -> str:
    """The part before the slash of its pools' resource names."""
    return driver.lower()


def resource_name(node_name: str, driver: str, pool: str, is_taken: Callable[[str], bool]) -> str:
    """Stable for the same arguments, also after a restart. is_taken: whether another pool or allocator has a name."""
    prefix, shown = domain(driver), _without_node(node_name, pool)
    name = f"{prefix}/{shown}"
    if extended_resources.NAME.fullmatch(shown) and not is_taken(name):
        return name
    digest = hashlib.sha256(f"{driver}\0{pool}".encode()).hexdigest()
    plain = _NOT_IN_A_NAME.sub("-", shown)
    for digits in _DIGITS:
        short = plain[: _MAX - digits - 1].strip("-_.")
        name = f"{prefix}/{short}-{digest[:digits]}" if short else f"{prefix}/{digest[:digits]}"
        if not is_taken(name):
            break
    return name


def _without_node(node_name: str, pool: str) -> str:
    if pool == node_name:
        return DEVICES
    for separator in _SEPARATORS:
        rest = pool.removeprefix(f"{node_name}{separator}")
        rest = rest if rest != pool else pool.removesuffix(f"{separator}{node_name}")
        if rest and rest != pool:
            return rest
    return pool
