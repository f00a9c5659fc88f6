"""How a played API server changes an object: merge patches, JSON patches and server-side apply. Changes nothing in place.

Lists of conditions merge by type; other lists are replaced.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from tests.fakes.played_api.messages import Object


class PatchError(Exception):
    """An operation of a JSON patch does not fit: another value, or no such path."""


def merged(stored: Object, patch: Object) -> Object:
    result = dict(stored)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merged(result.get(key) or {}, value)
        elif key == "conditions":
            result[key] = list({each["type"]: each for each in (*result.get(key, ()), *value)}.values())
        else:
            result[key] = value
    return result


def patched(stored: Object, operations: Sequence[Mapping[str, Any]]) -> Object:
    """Apply a JSON patch. Raises PatchError."""
    result = copy.deepcopy(stored)
    for operation in operations:
        *parents, last = operation["path"].strip("/").split("/")
        parent: Any = result
        try:
            for key in parents:
                parent = parent[int(key)] if isinstance(parent, list) else parent[key]
            _operate(operation, parent, last)
        except (LookupError, ValueError) as exc:
            raise PatchError(operation["path"]) from exc
    return result


def _operate(operation: Mapping[str, Any], parent: Any, last: str) -> None:
    is_list, verb = isinstance(parent, list), operation["op"]
    key: Any = last if not is_list else len(parent) if last == "-" else int(last)
    if verb == "add" and is_list:
        parent.insert(key, operation["value"])
    elif verb == "add":
        parent[key] = operation["value"]
    elif verb == "test":
        if parent[key] != operation["value"]:
            raise LookupError(key)
    elif verb == "remove":
        del parent[key]
    else:
        # what is replaced exists
        parent[key], _ = operation["value"], parent[key]


def applied(stored: Object, body: Object, manager: str) -> Object:
    """Server-side apply: the manager's earlier fields that body lacks are removed."""
    others, before = [], {}
    for entry in stored.get("metadata", {}).get("managedFields", ()):
        if entry["manager"] == manager and ("status" in body) == bool(entry.get("subresource")):
            before = entry["fieldsV1"]
        else:
            others.append(entry)
    content = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    entry = {"manager": manager, "operation": "Apply", "apiVersion": body["apiVersion"], "fieldsType": "FieldsV1"}
    entry |= {"fieldsV1": _fields(content)} | ({"subresource": "status"} if "status" in body else {})
    result = merged(_without(stored, before, content), body)
    result["metadata"]["managedFields"] = [*others, entry]
    return result


def _fields(content: Object) -> Object:
    return {f"f:{key}": _fields(value) if isinstance(value, dict) else {} for key, value in content.items()}


def _without(stored: Object, fields: Object, content: Object) -> Object:
    """stored less the leaves that `fields` names and `content` lacks."""
    result = {}
    for key, value in stored.items():
        owned = fields.get(f"f:{key}")
        if isinstance(value, dict) and owned:
            result[key] = _without(value, owned, content.get(key) or {})
        elif owned is None or key in content or isinstance(value, list):
            result[key] = value
    return result
