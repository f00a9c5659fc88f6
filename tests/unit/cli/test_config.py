"""`config explain` and `config validate`: by the schemas that `make generate` puts into the package."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from charts import generate_config_rules
from tests.unit.cli.conftest import Ran, Run
from tests.unit.cli.test_bad_input import STEERING, check_answer

_GROUP: Final = {"paths": [{"path": "/dev/x"}]}
_VERSION: Final = "nodedevice.io/v1alpha1"
Validated = Callable[..., Ran]


def _config(plugins: Any, **more: Any) -> dict[str, Any]:
    made = {"apiVersion": _VERSION, "kind": "NodeDeviceConfig", "metadata": {"name": "x"}}
    return {**made, "spec": {"plugins": plugins}, **more}


def _named(resource: str, **group: Any) -> dict[str, Any]:
    return {"resourceName": resource, "groups": [{**_GROUP, **group}]}


def _generic(**group: Any) -> dict[str, Any]:
    return _config({"generic": [_named("a.io/b", **group)]})


@pytest.fixture
def validated(run: Run, tmp_path: Path) -> Validated:
    """What `config validate` says of a file with these documents. more: further arguments."""
    file = tmp_path / "file.yaml"

    def validate(*documents: Any, more: tuple[str, ...] = ()) -> Ran:
        file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
        return run("config", "validate", str(file), *more)

    return validate


def test_no_schema_has_what_is_not_checked() -> None:
    """A bound of another kind would pass unseen."""
    known = {
        *("type", "properties", "required", "additionalProperties", "items", "enum", "nullable", "pattern"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"),
        *("minItems", "maxItems", "maxProperties", "description", "format", "default"),
        *("x-rules", "x-keys", "x-or-empty", "x-any", "x-refused", "x-example"),
        *("x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-preserve-unknown-fields"),
        # of a selector's meaning to an API server; and what x-rules say better
        *("x-kubernetes-map-type", "allOf"),
    }

    def words(found: Any) -> set[str]:
        if not isinstance(found, dict):
            return set()
        inner = [*found.get("properties", {}).values(), found.get("items"), found.get("additionalProperties")]
        return {*found, *(word for each in inner for word in words(each))}

    rules = generate_config_rules
    for found in (rules.config(), rules.settings(), rules.values(is_whole=True)):
        assert words(found) <= known


def test_what_is_right(validated: Validated) -> None:
    ran = validated(_generic(count=3), {"delivery": "nri", "plugins": {}})
    assert ran.status == 0, ran
    assert "NodeDeviceConfig x is valid" in ran.out
    assert "settings of the agent is valid" in ran.out
    assert "only an agent can check the rest" in ran.out
    volumes = [{"name": "a", "configMap": {"name": "x"}}, {"name": "b", "emptyDir": {}}]
    assert validated({"agents": {"extraVolumes": volumes}}).status == 0
    # Helm takes the chart's default away
    assert validated({"agents": {"config": {"delivery": None}}}).status == 0


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (_generic(path=[]), "spec.plugins.generic[0].groups[0].path: unknown key; did you mean paths?"),
        (_generic(count=0), "count: 0 is not possible; 1 to 1000 is"),
        (_config({"generic": [{"groups": []}]}), "spec.plugins.generic[0].resourceName: is missing"),
        (_config({"generic": [_named("no")]}), '"no" must be domain/name, such as vendor.com/gpu'),
        (_config({"generic": [_named("a/b")] * 2}), "spec.plugins.generic[1]: a/b is named twice"),
        # an API server drops the label, and the rest selects all nodes
        (_config({}, spec={"plugins": {}, "nodeSelector": {"gpu": None}}), "spec.nodeSelector.gpu: null is not text"),
        ({**_config({}), "kind": "Pod"}, "only nodedevice.io/v1alpha1, NodeDeviceConfig can be checked here"),
        ({"delivery": "docker"}, '"docker" is not one of auto, kubelet, none, nri'),
        ({"agents": {"config": {"runtim": 1}}}, "agents.config.runtim: unknown key; did you mean runtime?"),
        ({"agents": {}, "plugins": {}}, "plugins: unknown key; it belongs below agents.config"),
        ({"operator": {"replicas": 10}, "scheduler": {}}, "operator.replicas: 10 is not possible; 1 to 9 is"),
        ({"agents": {"extraVolumes": [{"nam": {}}]}}, 'extraVolumes[0].nam: "nam" is not possible as a key here'),
        ({"apiVersion": _VERSION, "spec": {}}, "apiVersion, kind: are missing; a NodeDeviceConfig begins with"),
    ],
)
def test_what_is_wrong(validated: Validated, document: Any, problem: str) -> None:
    ran = validated(document)
    assert (ran.status, problem in ran.out) == (1, True), ran


def test_a_field_that_is_null_is_none(validated: Validated) -> None:
    """As for an API server, which drops it: keys without what stood below them."""
    group = {**_GROUP, "count": None, "env": None, "select": None}
    plugins = {"simulated": None, "nvml": None, "generic": [{"resourceName": "a.io/b", "groups": [group]}]}
    ran = validated(_config({}, spec={"priority": None, "nodeSelector": None, "plugins": plugins}, status=None))
    assert ran.status == 0, ran


def test_paths_of_the_host_are_compared_with_values_that_are_checked_too(validated: Validated) -> None:
    """As an agent does, with the default of the chart otherwise."""
    shadow = _generic(paths=[{"path": "/etc/shadow"}], mounts=[{"hostPath": "/opt/x"}])
    ran = validated(shadow)
    place, remedy = "spec.plugins.generic[0].groups[0]", "add its directory to agents.allowedHostPaths"
    assert ran.status == 1
    assert f"{place}.paths[0].path: /etc/shadow is not below /dev; {remedy}" in ran.out
    assert f"{place}.mounts[0].hostPath: /opt/x is not below /dev" in ran.out
    assert validated(shadow, {"agents": {"allowedHostPaths": ["/etc", "/opt"]}}).status == 0
    none = validated(_generic(), {"agents": {"allowedHostPaths": []}})
    assert f"{place}.paths[0].path: /dev/x is not below nothing" in none.out


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"---\n---\n",
        b"a: [",
        b"\xff",
        b"[" * 10_000,
        b"a: !!python/object:os.system {}\n",
        b"a: &a [*a]\n",
        b"plugins: &a {generic: *a}",
        "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * 10)}]" for i in range(9)).encode(),
    ],
)
def test_a_file_that_is_none(run: Run, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "odd"
    file.write_bytes(content)
    for name in (str(file), str(tmp_path), str(tmp_path / "nowhere")):
        ran = run("config", "validate", name)
        check_answer(ran)
        assert ran.status == 2, ran


def test_a_key_that_is_there_twice_is_refused(run: Run, tmp_path: Path) -> None:
    """Two blocks that were pasted one below the other: of the first nothing would count."""
    file = tmp_path / "file.yaml"
    file.write_text("plugins:\n  generic: []\n  generic: []\n")
    ran = run("config", "validate", str(file))
    assert (ran.status, "the key generic twice, in line 2 and in line 3" in ran.err) == (2, True), ran


def test_what_is_in_a_file_cannot_steer(validated: Validated) -> None:
    settings = {"a\x1b[31m\x9b": "b", "runtime": "\x1b\x07"}
    ran = validated(settings, {"kind": "\x1b[1m", "metadata": {"name": "\x07"}})
    assert ran.status == 1
    assert not STEERING.search(ran.out + ran.err)


def test_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("delivery: nri\n"))
    assert run("config", "validate", "-").out.startswith("-: settings of the agent is valid\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8"))
    ran = run("config", "validate", "-")
    assert ran.status == 2
    assert ran.err.startswith("error: -: 'utf-8' codec can't decode byte 0xff")
    assert ran.err.endswith("; correct the file\n")


def test_a_field_is_explained_through_lists(run: Run) -> None:
    out = run("config", "explain", "spec.plugins.generic.groups.count").out
    assert out.startswith("spec.plugins.generic.groups.count: whole number, 1 to 1000\n")
    assert run("config", "explain", "spec.plugins.generic[0].groups[12].count").out.endswith(out.partition(": ")[2])
    assert run("config", "explain", "spec.plugins.generic.groups.count.x").status == 2


def test_what_an_api_server_lists(validated: Validated) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}}
    for each in (listed, {**listed, "apiVersion": _VERSION, "kind": "NodeDeviceConfigList"}):
        ran = validated({**each, "items": [_generic(), _generic(cout=1)]})
        assert "NodeDeviceConfig x is valid" in ran.out
        assert "spec.plugins.generic[0].groups[0].cout: unknown key; did you mean count?" in ran.out
        assert validated({**each, "items": []}).status == 2


def test_json(validated: Validated, tmp_path: Path) -> None:
    ran, file = validated({"kind": "Pod"}, {"delivery": "nri"}, more=("-o", "json")), str(tmp_path / "file.yaml")
    problem = f"apiVersion, kind: only {_VERSION}, NodeDeviceConfig can be checked here"
    assert ran.status == 1
    assert json.loads(ran.out) == {
        "apiVersion": "kubectl.nodedevice.io/v1alpha1",
        "kind": "ValidationReport",
        "items": [
            {"file": file, "document": "Pod (no name)", "problems": [problem]},
            {"file": file, "document": "settings of the agent", "problems": []},
        ],
    }
    assert validated({"delivery": "nri"}, more=("-o", "json")).status == 0
