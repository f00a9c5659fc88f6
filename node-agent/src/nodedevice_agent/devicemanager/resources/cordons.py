"""An administrator's cordons of one resource, which outlive the NodeDevice that they were set on.

With a Node its NodeDevices are deleted, as cloud controllers do it; the broken device is still there when the next one is made.
"""

from collections.abc import Mapping

import msgspec
from nodedevice_api.names import ALL_DEVICES, ALL_DEVICES_WORD


class Cordons(msgspec.Struct, frozen=True, omit_defaults=True):
    """Device IDs (or * for all) with the administrator's reasons; the names are those of the checkpoint's file.

    uid: of the NodeDevice seen last, "" where there was none. in_spec: its cordons. remembered: of objects before it that it does
    not have, until the operator has set them again.
    """

    uid: str = msgspec.field(name="UID", default="")
    in_spec: dict[str, str] = msgspec.field(name="InSpec", default_factory=dict)
    remembered: dict[str, str] = msgspec.field(name="Remembered", default_factory=dict)

    def seen(self, uid: str, in_spec: Mapping[str, str]) -> "Cordons":
        """After the object was seen. A cordon that is missing was removed from that object, or set on one before it."""
        earlier = self.remembered if uid == self.uid else {**self.remembered, **self.in_spec}
        return Cordons(uid, dict(in_spec), {i: reason for i, reason in earlier.items() if i not in in_spec})

    @property
    def device_ids(self) -> frozenset[str]:
        """Of every cordon that is honoured; with * if the word for it is among them."""
        found = frozenset((*self.in_spec, *self.remembered))
        return found | {ALL_DEVICES} if ALL_DEVICES_WORD in found else found


NO_CORDONS = Cordons()
