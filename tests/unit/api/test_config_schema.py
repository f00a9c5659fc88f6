"""The kind NodeDeviceConfig: no key of a setting is dropped without a word, and none is required that the agent does not need."""

from charts import generate_config_schema
from tests.unit.api.test_crds import Schema, load, schemas


def spec() -> Schema:
    version = load(generate_config_schema.CRD)["spec"]["versions"][0]
    found: Schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


SCHEMAS = dict(schemas(spec()["properties"]["plugins"]))


def test_unknown_keys_are_kept_in_each_object_of_the_settings_and_nowhere_else() -> None:
    """Pruned they would be lost without a word in a server-side apply, even a strict one."""
    kept = {path for path, schema in SCHEMAS.items() if schema.get("x-kubernetes-preserve-unknown-fields")}
    assert kept == {path for path, schema in SCHEMAS.items() if "properties" in schema}


def test_so_are_those_of_spec_which_are_what_the_agent_knows() -> None:
    """A mistyped selector would select every node."""
    found = spec()
    assert found["x-kubernetes-preserve-unknown-fields"]
    assert set(found["properties"]) == {"nodeSelector", "priority", "plugins"}


def test_which_objects_have_required_keys() -> None:
    generic = (".generic[]", ".generic[].groups[].paths[]", ".generic[].groups[].mounts[]")
    found = {path for path, schema in SCHEMAS.items() if schema.get("required")}
    assert found == {*generic, ".simulated[]", ".nvml.sharing[].shares"}
