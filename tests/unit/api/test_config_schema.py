"""The kind NodeDeviceConfig beside the agent's settings: every key of the one is in the other, with the same type and words.

The walk here is another one than the generator's: it goes along the settings, and along the schema, and compares what they find.
"""

import msgspec
import pytest
from msgspec import inspect as shapes
from nodedevice_agent.plugins.settings import ConfiguredPlugins

from charts import generate_config_schema
from docs.generate_settings import explanations
from hack import yaml_text
from tests.unit.api.test_crds import Schema, schemas

NAMES_OF_TYPES = {
    shapes.StrType: "string",
    shapes.LiteralType: "string",
    shapes.BoolType: "boolean",
    shapes.IntType: "integer",
    shapes.FloatType: "number",
    shapes.ListType: "array",
    shapes.DictType: "object",
    shapes.StructType: "object",
}


def spec() -> Schema:
    crd = yaml_text.load(generate_config_schema.CRD.read_text(encoding="utf-8"))
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: Schema = schema["properties"]["spec"]
    return found


def in_settings(kind: type[msgspec.Struct], path: str = "") -> dict[str, tuple[shapes.Type, str, bool]]:
    """By path: the type, the explanation in the code, and whether null is taken."""
    found: dict[str, tuple[shapes.Type, str, bool]] = {}
    explained = explanations(kind)
    info = shapes.type_info(kind)
    assert isinstance(info, shapes.StructType)
    for field in info.fields:
        types = field.type.types if isinstance(field.type, shapes.UnionType) else (field.type,)
        [one] = [each for each in types if not isinstance(each, shapes.NoneType)]
        here = f"{path}.{field.encode_name}"
        found[here] = (one, explained[field.name], len(types) > 1)
        inner = one.item_type if isinstance(one, shapes.ListType) else one
        if isinstance(inner, shapes.StructType):
            found |= in_settings(inner.cls, here + ("[]" if isinstance(one, shapes.ListType) else ""))
    return found


SETTINGS = in_settings(ConfiguredPlugins)
SCHEMAS = dict(schemas(spec()["properties"]["plugins"]))


def test_it_is_made_of_todays_settings() -> None:
    text = generate_config_schema.CRD.read_text(encoding="utf-8")
    assert generate_config_schema.with_plugins(text) == text, "run `make generate`"


def test_both_have_the_same_keys() -> None:
    described = {path for path in SCHEMAS if path and not path.endswith(("[]", "{}"))}
    assert described == set(SETTINGS)
    assert len(described) > 60


@pytest.mark.parametrize("path", SETTINGS)
def test_each_key_has_the_type_and_the_words_of_the_code(path: str) -> None:
    kind, explanation, is_nullable = SETTINGS[path]
    schema = SCHEMAS[path]
    assert schema["type"] == NAMES_OF_TYPES[type(kind)]
    assert schema.get("nullable", False) == is_nullable
    first = explanation.split()[0]
    assert schema["description"].split()[0].lower() == first.lower()
    bounds = {"ge": "minimum", "le": "maximum", "min_length": "minItems"}
    for ours, theirs in bounds.items():
        bound = getattr(kind, ours, None)
        if bound is not None:
            assert schema[theirs] == bound


def test_unknown_keys_are_kept_in_each_object_of_the_settings_and_nowhere_else() -> None:
    """Pruned they would be lost without a word in a server-side apply, even a strict one."""
    kept = {path for path, schema in SCHEMAS.items() if schema.get("x-kubernetes-preserve-unknown-fields")}
    assert kept == {path for path, schema in SCHEMAS.items() if "properties" in schema}


def test_so_are_those_of_spec_which_are_what_the_agent_knows() -> None:
    """A mistyped selector would select every node."""
    found = spec()
    assert found["x-kubernetes-preserve-unknown-fields"]
    assert set(found["properties"]) == {"nodeSelector", "priority", "plugins"}


def test_what_is_required_is_so_in_both() -> None:
    for path, schema in SCHEMAS.items():
        for key in schema.get("required", ()):
            assert f"{path}.{key}" in SETTINGS
    required = {path for path, schema in SCHEMAS.items() for key in schema.get("required", ())}
    assert required == {
        *(".generic[]", ".generic[].groups[].paths[]", ".generic[].groups[].mounts[]", ".simulated[]"),
        ".nvml.sharing[].shares",
    }


def test_a_setting_without_a_schema_is_an_error_and_not_forgotten() -> None:
    class Odd(msgspec.Struct):
        """Settings of a type that no kind of the API has."""

        # when
        at: set[int]

    with pytest.raises(ValueError, match="no schema for"):
        generate_config_schema.object_of(Odd)
