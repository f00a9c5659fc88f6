"""The parts that the scheduler extender has assigned to a pod: an annotation of the pod, by container and physical device.

The extender writes it with the binding. A tenant can write annotations of its pods: each reader checks it first. Pure.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

# By resource name, container and ID of the physical device: how many of its parts.
Assigned = Mapping[str, Mapping[str, Mapping[str, int]]]

MAX_CHARACTERS: Final = 16 * 1024
_POD_UID: Final = "podUID"
_PARTS: Final = "parts"


def encode(pod_uid: str, assigned: Assigned) -> str:
    """Equal assignments give equal texts."""
    return json.dumps({_POD_UID: pod_uid, _PARTS: assigned}, sort_keys=True, separators=(",", ":"))


def decode(text: str, pod_uid: str) -> Assigned:
    """The assignment of that pod. Raises ValueError with a sentence for anything else, such as one copied from another pod."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"it has more than {MAX_CHARACTERS} characters")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"it is not JSON: {str(exc)[:80]}") from exc
    if not isinstance(found, dict) or not isinstance(found.get(_PARTS), dict):
        raise ValueError(f"it is not an object with {_POD_UID} and {_PARTS}")
    if found.get(_POD_UID) != pod_uid:
        raise ValueError(f"it is for another pod, of UID {str(found.get(_POD_UID))[:40]!a}")
    for container in _values(found[_PARTS]):
        for parts in _values(container):
            for count in _values(parts):
                if type(count) is not int or count < 1:
                    raise ValueError(f"{str(count)[:40]!a} is not a number of parts, which is 1 or more")
    parts_of: Assigned = found[_PARTS]
    return parts_of


def _values(level: Any) -> list[Any]:
    if not isinstance(level, dict) or not level:
        raise ValueError(f"{_PARTS} is not by resource, container and device: {str(level)[:40]!a}")
    return list(level.values())
