"""What a device is, whatever it is called.

Tokens, as the built-in plugins list them (see DeviceDetails): device numbers (`c188:0`), UUIDs, and places, in sysfs
(`/devices/...`) and those that last over a replug and a boot.
"""

from msgspec import Struct


class Identity(Struct, frozen=True, omit_defaults=True, rename="pascal"):
    """Renamed as in the checkpoint's file.

    is_shared: several containers may hold it, so it is the same device as another one only if that is not shared.
    """

    tokens: tuple[str, ...]
    is_shared: bool = False
