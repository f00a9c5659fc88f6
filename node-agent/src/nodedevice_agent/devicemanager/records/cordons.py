"""An administrator's cordons of one resource, which outlive the NodeDevice that they were set on.

Cloud controllers delete a Node with its NodeDevices. The broken device is still there when the next NodeDevice is created.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TypeGuard

import msgspec
from nodedevice_api.names import ALL_DEVICES, ALL_DEVICES_WORD

# as in crds/
_MAX_REASON, _MAX_BY, _MAX_AT = 1024, 128, 35
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]")
_DATE_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})", re.IGNORECASE
)


class Cordon(msgspec.Struct, frozen=True):
    """The administrator's note on a cordon: reason, author and time; "" for each missing value. at: RFC 3339."""

    reason: str = ""
    by: str = ""
    at: str = ""


def noted(reason: str, by: object = "", at: object = "") -> Cordon:
    """Convert a note for the API: an invalid note is dropped, but its cordon stays."""
    return Cordon(reason[:_MAX_REASON], by if _is_name(by) else "", at if _is_date_time(at) else "")


def _is_name(by: object) -> TypeGuard[str]:
    return isinstance(by, str) and len(by) <= _MAX_BY and _CONTROL_CHARACTERS.search(by) is None


def _is_date_time(at: object) -> TypeGuard[str]:
    if not isinstance(at, str) or len(at) > _MAX_AT or _DATE_TIME.fullmatch(at) is None:
        return False
    try:
        datetime.fromisoformat(at.upper())
    except ValueError:
        return False
    return True


class Cordons(msgspec.Struct, frozen=True):
    """Cordons by device ID, or * for all.

    uid: of the NodeDevice seen last, "" if it does not exist. in_spec: its cordons. remembered: cordons of earlier objects that it
    lacks, until the operator has set them again.
    """

    uid: str = ""
    in_spec: dict[str, Cordon] = msgspec.field(default_factory=dict)
    remembered: dict[str, Cordon] = msgspec.field(default_factory=dict)

    def seen(self, uid: str, in_spec: Mapping[str, Cordon]) -> "Cordons":
        """The cordons after the object was seen. A missing cordon was removed from that object, or set on one before it."""
        earlier = self.remembered if uid == self.uid else {**self.remembered, **self.in_spec}
        return Cordons(uid, dict(in_spec), {i: cordon for i, cordon in earlier.items() if i not in in_spec})

    def after(self, earlier: "Cordons") -> "Cordons":
        """The same with cordons that were in force before these, and that no later object was seen to have."""
        remembered = earlier.seen(self.uid, self.in_spec).remembered
        return Cordons(self.uid, self.in_spec, {**remembered, **self.remembered})

    @property
    def device_ids(self) -> frozenset[str]:
        """IDs of every cordon in force; the word for all devices also becomes *."""
        found = frozenset((*self.in_spec, *self.remembered))
        return found | {ALL_DEVICES} if ALL_DEVICES_WORD in found else found

    def by(self, device_id: str, parent: str = "") -> str:
        """The note of who cordoned a device. parent: the physical device of a part."""
        for cordoned in (device_id, parent, ALL_DEVICES, ALL_DEVICES_WORD):
            cordon = self.in_spec.get(cordoned) or self.remembered.get(cordoned)
            if cordon is not None and cordon.by:
                return cordon.by
        return ""


NO_CORDONS = Cordons()
