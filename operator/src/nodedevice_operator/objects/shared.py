"""What the kinds share: our name as a field manager, the decoder of watched objects, one instance for equal values.

Whatever many objects share is kept once: names, reasons, whole conditions. That is how thousands of nodes fit into memory.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from nodedevice_api import names

from nodedevice_operator.objects.meta import Schema

# A field manager as it stands in managedFields. Ours counts only where it came by server-side apply: another operation
# under the same name is another owner to the API server.
OURS: Final = names.OPERATOR_FIELD_MANAGER
STATUS: Final = "status"

# Values of few kinds, each with thousands of equals; past so many kinds they are not worth remembering.
_MOST_SHARED: Final = 4096

S = TypeVar("S", bound=Schema)
V = TypeVar("V", bound=Hashable)


def from_event(body: Mapping[str, Any], schema: type[S]) -> S:
    """A watched object in its schema. Raises msgspec.ValidationError where it is not of that kind."""
    return msgspec.convert(body, schema)


def shared(known: dict[V, V], value: V) -> V:
    """The one instance that stands for all values equal to this one."""
    if len(known) >= _MOST_SHARED:
        known.clear()
    return known.setdefault(value, value)
