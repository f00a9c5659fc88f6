"""Who has written a NodeDevice's status, by its managedFields: its agent, the operator, or another client in their place."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from nodedevice_api import names
from nodedevice_common.decoding import Undecodable, decode
from nodedevice_kube.interning import intern

from nodedevice_operator.objects.meta import OURS, STATUS
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema, StatusFields, StatusWriter

# The API server names this manager as the owner of all fields that existed before the first apply to an object without owners.
_BEFORE_FIRST_APPLY: Final = "before-first-apply"
_WRITERS: Final = frozenset({names.AGENT_FIELD_MANAGER, OURS, _BEFORE_FIRST_APPLY})
# Fields that an agent always writes.
_OF_AGENT: Final = frozenset({"f:total", "f:endpoint"})
_CONDITIONS: Final = "f:conditions"
# as managedFields names the entries of a list
_THEIR_CONDITIONS: Final = frozenset(
    f'k:{{"type":"{kind}"}}' for kind in (*names.AGENT_CONDITIONS, *names.OPERATOR_CONDITIONS)
)
_MOST_EDITORS: Final = 8


def editors(entries: Sequence[StatusWriter]) -> frozenset[str]:
    """Other managers that have written fields of the agent or the operator. A condition of another type belongs to its writer."""
    others = [entry for entry in entries if entry.subresource == STATUS and entry.manager not in _WRITERS]
    return frozenset(intern(entry.manager) for entry in others[:_MOST_EDITORS] if _is_edit(entry.fields))


def is_of_agent(obj: NodeDeviceSchema) -> bool:
    """Whether an agent has written the status, and not another client in its place.

    A status counts as the agent's while it is advertised, and when its fields have no owner: managedFields can be reset or
    restored, and an agent that finds the status as it should be writes nothing.
    """
    writers = [entry for entry in obj.metadata.managed_fields if entry.subresource == STATUS]
    if any(entry.manager == names.AGENT_FIELD_MANAGER for entry in writers):
        return True
    if any(c.type == names.Condition.ADVERTISED and c.status == "True" for c in obj.status.conditions):
        return True
    return not any(_OF_AGENT & _owned(entry.fields).keys() for entry in writers if entry.manager not in _WRITERS)


def _is_edit(fields: msgspec.Raw) -> bool:
    owned = _owned(fields)
    if _CONDITIONS in owned and _THEIR_CONDITIONS & _conditions(owned[_CONDITIONS]).keys():
        return True
    return not owned.keys() <= {".", _CONDITIONS}


def _owned(fields: msgspec.Raw) -> Mapping[str, msgspec.Raw]:
    """The owned fields of the status; none if they cannot be decoded."""
    try:
        return decode(fields, StatusFields).status
    except Undecodable:
        return {}


def _conditions(fields: msgspec.Raw) -> Mapping[str, msgspec.Raw]:
    """The same of its conditions."""
    try:
        return decode(fields, dict[str, msgspec.Raw])
    except Undecodable:
        return {}
