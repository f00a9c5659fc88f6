"""Validates a NodeDevice's status as the API server does: the schema of crds/, and its CEL rules in Python.

Rules are found by their messages, so that a rule of the CRD that is missing here fails a test.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from hack import yaml_text

Json = dict[str, Any]

_CRD = yaml_text.load((Path(__file__).parents[4] / "crds/nodedevices.yaml").read_text(encoding="utf-8"))
STATUS = _CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
_TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def _listed(status: Json) -> list[Json]:
    return list(status.get("devices", ()))


def _rises(keys: list[Any]) -> bool:
    return all(before < after for before, after in pairwise(keys))


def _holdings(status: Json) -> int:
    return sum(
        len(a.get("deviceIDs", ())) + a.get("deviceIDsOmitted", 0) + sum(p["parts"] for p in a.get("parts", ()))
        for a in status["allocations"]
    )


def _total(device: Json) -> int:
    return int(device["parts"]["total"]) if "parts" in device else 1


def _healthy(device: Json) -> int:
    return int(device["parts"]["healthy"]) if "parts" in device else int(device["health"] == "Healthy")


_RULES: dict[str, Callable[[Json], bool]] = {
    "healthy cannot exceed total": lambda s: s["healthy"] <= s["total"],
    "cordoned cannot exceed total": lambda s: s["cordoned"] <= s["total"],
    "reserved cannot exceed releasing": lambda s: s["reserved"] <= s["releasing"],
    "available cannot exceed healthy": lambda s: s["available"] <= s["healthy"],
    "allocated + releasing + available cannot exceed total; a held device that is no longer listed counts in total": (
        lambda s: s["allocated"] + s["releasing"] + s["available"] <= s["total"]
    ),
    "devices must be sorted by id, each id once": lambda s: _rises([d["id"].encode() for d in _listed(s)]),
    "total must be the number of devices listed, or of their parts, plus devicesOmitted": (
        lambda s: sum(map(_total, _listed(s))) + s["devicesOmitted"] == s["total"]
    ),
    "healthy must be the number of devices whose health is Healthy, or of their healthy parts": (
        lambda s: s["devicesOmitted"] > 0 or sum(map(_healthy, _listed(s))) == s["healthy"]
    ),
    "allocated cannot exceed the device IDs and parts listed in allocations": (
        lambda s: s.get("allocationsOmitted", 0) > 0 or _holdings(s) >= s["allocated"]
    ),
    "allocations must be sorted by podUID, container and claim, each once": (
        lambda s: _rises([(a["podUID"], a["container"], a.get("claim", {}).get("name", "")) for a in s["allocations"]])
    ),
}


def problems(status: Json) -> list[str]:
    """All that the API server would refuse; empty when it would take this status."""
    return [*_of_schema(status, STATUS, "status"), *(text for text, holds in _RULES.items() if not holds(status))]


def rules_of_one_side() -> set[str]:
    """Those of the CRD that are missing here, and those that only this file has."""
    return {" ".join(rule["message"].split()) for rule in STATUS["x-kubernetes-validations"]} ^ _RULES.keys()


def _of_schema(value: Any, schema: Json, where: str) -> Iterator[str]:
    if type(value) is not _TYPES[schema["type"]]:
        yield f"{where}: {type(value).__name__} is not {schema['type']}"
    elif isinstance(value, dict):
        # a map is as many fields of one kind
        each = schema.get("additionalProperties")
        known: Json = dict.fromkeys(value, each) if each else schema.get("properties", {})
        if len(value) > schema.get("maxProperties", len(value)):
            yield f"{where}: {len(value)} fields"
        yield from (f"{where}.{name} is missing" for name in schema.get("required", ()) if name not in value)
        yield from (f"{where}.{name} is unknown" for name in value if name not in known)
        for name in value.keys() & known.keys():
            yield from _of_schema(value[name], known[name], f"{where}.{name}")
    elif isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema["maxItems"]:
            yield f"{where}: {len(value)} items"
        for index, item in enumerate(value):
            yield from _of_schema(item, schema["items"], f"{where}[{index}]")
    elif isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield f"{where}: {len(value)} characters"
        if "enum" in schema and value not in schema["enum"]:
            yield f"{where}: {value!r} is none of {schema['enum']}"
    elif isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", 2**31 - 1):
        yield f"{where}: {value} is out of range"
