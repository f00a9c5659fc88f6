"""The CRD files by themselves: what can be verified of them without an API server.

A YAML slip (an unquoted comma in a flow mapping makes a second key) is no error to the API server, which drops what it does not
know; so the keys are checked here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodedevice_api import names

from hack import yaml_text

ROOT = Path(__file__).parents[3]
CRDS = sorted((ROOT / "crds").glob("*.yaml"))
SCHEMA_KEYS = {
    *("type", "format", "description", "properties", "additionalProperties", "items", "required", "enum", "pattern"),
    *("minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "maxProperties", "default"),
    *("x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"),
    # an object of the agents' settings that may be null
    "nullable",
    # further patterns of a text
    "allOf",
    # an object of the agents' settings: they refuse a key that they do not know, and name the nearest
    "x-kubernetes-preserve-unknown-fields",
}
# every object of every kind has these, and Kubernetes explains them
TRIVIAL = {".apiVersion", ".kind", ".metadata"}

Schema = dict[str, Any]


def load(path: Path) -> Any:
    return yaml_text.load(path.read_text(encoding="utf-8"))


def schemas(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Each schema below `schema` and itself, with its path: .spec.cordonedDevices[].id"""
    yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from schemas(below, f"{path}.{name}")
    if "items" in schema:
        yield from schemas(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from schemas(schema["additionalProperties"], f"{path}{{}}")


def every_schema() -> list[Any]:
    rows = []
    for crd in CRDS:
        for version in load(crd)["spec"]["versions"]:
            for path, schema in schemas(version["schema"]["openAPIV3Schema"]):
                rows.append(pytest.param(path, schema, id=f"{crd.stem}{path}"))
    return rows


@pytest.mark.parametrize(("path", "schema"), every_schema())
def test_schema(path: str, schema: Schema) -> None:
    """Every property is explained, everything that can grow is bounded, and every rule has a message."""
    assert set(schema) <= SCHEMA_KEYS
    assert "type" in schema
    if not path.endswith(("[]", "{}")) and path not in TRIVIAL:
        assert schema.get("description", "").endswith("."), "kubectl explain shows no sentence for this field"
    if path in TRIVIAL:
        return
    if schema["type"] == "string":
        assert "maxLength" in schema or schema.get("format") == "date-time"
    if schema["type"] == "array":
        assert "maxItems" in schema
        assert schema["x-kubernetes-list-type"] in {"atomic", "map"}
    if schema["type"] == "integer":
        assert "minimum" in schema
    if "additionalProperties" in schema:
        assert "maxProperties" in schema
    for rule in schema.get("x-kubernetes-validations", []):
        # a `reason` would make the API server drop the message
        assert {"rule", "message"} <= set(rule) <= {"rule", "message", "fieldPath"}, path
        assert rule["message"].strip() == rule["message"] != "", path


@pytest.mark.parametrize(
    ("kind", "plural"), [(names.NODE_DEVICE, names.NODE_DEVICES), (names.POD_DEVICE, names.POD_DEVICES)]
)
def test_names_are_those_of_the_code(kind: str, plural: str) -> None:
    [crd] = [crd for crd in map(load, CRDS) if crd["spec"]["names"]["kind"] == kind]
    assert (crd["metadata"]["name"], crd["spec"]["group"]) == (f"{plural}.{names.GROUP}", names.GROUP)
    assert crd["spec"]["names"]["plural"] == plural
    assert [version["name"] for version in crd["spec"]["versions"]] == [names.VERSION]


def test_lists_of_nodedevices_have_one_owner_but_those_with_many() -> None:
    """A list with map keys costs the API server up to three times an atomic one: only where two write."""
    schema = load(ROOT / "crds/nodedevices.yaml")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    maps = {path for path, each in schemas(schema) if each.get("x-kubernetes-list-type") == "map"}
    assert maps == {".spec.cordonedDevices", ".status.conditions"}
