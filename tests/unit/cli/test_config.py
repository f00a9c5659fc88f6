"""`config explain` and `config validate`: by the schemas that `make generate` puts into the package."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kubectl_nodedevice.errors import CliError
from nodedevice_kube import config_rules

from charts import generate_config_rules
from tests.unit.cli.conftest import Run, Terminal
from tests.unit.cli.test_bad_input import STEERING, check_answer

_GROUP: Final = {"paths": [{"path": "/dev/x"}]}


def _config(plugins: Any, **more: Any) -> dict[str, Any]:
    made = {"apiVersion": "nodedevice.io/v1alpha1", "kind": "NodeDeviceConfig", "metadata": {"name": "x"}}
    return {**made, "spec": {"plugins": plugins}, **more}


def _generic(**group: Any) -> dict[str, Any]:
    return _config({"generic": [{"resourceName": "a.io/b", "groups": [{**_GROUP, **group}]}]})


def _file(folder: Path, *documents: Any) -> str:
    file = folder / "file.yaml"
    file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    return str(file)


def test_the_rules_are_generated() -> None:
    for path, text in generate_config_rules.files().items():
        assert path.read_text(encoding="utf-8") == text, "run make generate"


def test_no_schema_has_what_is_not_checked() -> None:
    """A bound of another kind would pass unseen."""
    known = {
        *("type", "properties", "required", "additionalProperties", "items", "enum", "nullable", "pattern"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"),
        *(
            "minItems",
            "maxItems",
            "maxProperties",
            "x-rules",
            "x-keys",
            "x-or-empty",
            "x-any",
            "x-refused",
            "x-example",
        ),
        *("x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-preserve-unknown-fields"),
        *("description", "format", "default"),
        # of a selector's meaning to an API server; and what x-rules say better
        *("x-kubernetes-map-type", "allOf"),
    }

    def words(found: Any) -> set[str]:
        if not isinstance(found, dict):
            return set()
        inner = [*found.get("properties", {}).values(), found.get("items"), found.get("additionalProperties")]
        return {*found, *(word for each in inner for word in words(each))}

    for found in (
        generate_config_rules.config(),
        generate_config_rules.settings(),
        generate_config_rules.values(is_whole=True),
    ):
        assert words(found) <= known


def test_what_is_right(run: Run, tmp_path: Path) -> None:
    ran = run("config", "validate", _file(tmp_path, _generic(count=3), {"delivery": "nri", "plugins": {}}))
    assert ran.status == 0, ran
    assert "NodeDeviceConfig x is valid" in ran.out
    assert "settings of the agent is valid" in ran.out
    assert "only an agent can check the rest" in ran.out
    volumes = [{"name": "a", "configMap": {"name": "x"}}, {"name": "b", "emptyDir": {}}]
    assert run("config", "validate", _file(tmp_path, {"agents": {"extraVolumes": volumes}})).status == 0
    # Helm takes the chart's default away
    assert run("config", "validate", _file(tmp_path, {"agents": {"config": {"delivery": None}}})).status == 0


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (_generic(path=[]), "spec.plugins.generic[0].groups[0].path: unknown key; did you mean paths?"),
        (
            _generic(count="3"),
            'spec.plugins.generic[0].groups[0].count: "3" is not a whole number: write a number without quotes',
        ),
        (_generic(count=0), "count: 0 is not possible; 1 to 1000 is"),
        (_generic(count=True), "count: true is not a whole number"),
        (_generic(paths={}), "paths: {} is not a list"),
        (_config({"generic": [{"groups": []}]}), "spec.plugins.generic[0].resourceName: is missing"),
        (
            _config({"generic": [{"resourceName": "no", "groups": [_GROUP]}]}),
            '"no" must be domain/name, such as vendor.com/gpu',
        ),
        (
            _config({"generic": [{"resourceName": "a/b", "groups": [_GROUP]}] * 2}),
            "spec.plugins.generic[1]: a/b is named twice",
        ),
        (_config(None), "spec.plugins: is missing"),
        (_config({"generic": [None]}), "spec.plugins.generic[0]: null is not an object with keys"),
        # an API server drops the label, and the rest selects all nodes
        (_config({}, spec={"plugins": {}, "nodeSelector": {"gpu": None}}), "spec.nodeSelector.gpu: null is not text"),
        ({**_config({}), "kind": "Pod"}, "only nodedevice.io/v1alpha1, NodeDeviceConfig can be checked here"),
        ({"delivery": "docker"}, '"docker" is not one of auto, kubelet, none, nri'),
        ({"flappingWindowSeconds": float("nan")}, "is not possible"),
        (
            {"agents": {"config": {"runtim": 1}}},
            "values of the chart: agents.config.runtim: unknown key; did you mean runtime?",
        ),
        ({"agent": {}, "operator": {}}, "values of the chart: agent: unknown key; did you mean agents?"),
        ({"agents": {}, "plugins": {}}, "plugins: unknown key; it belongs below agents.config"),
        (
            {"operator": {"replicas": 10}, "scheduler": {"httpTimeout": "5"}},
            "operator.replicas: 10 is not possible; 1 to 9 is",
        ),
        (
            {"agents": {"extraVolumes": [{"name": "a", "configMapp": {}}]}},
            'agents.extraVolumes[0].configMapp: "configMapp" is not possible as a key here',
        ),
        ({"agents": {"cdi": "on"}}, 'agents.cdi: "on" is not one of auto, true, false'),
        ({"image": {"tag": 3}}, "image.tag: 3 is not text: put it in quotes"),
        (
            {"agents": {"resources": {"limits": {"memory": "1 Gi"}}}},
            'agents.resources.limits.memory: "1 Gi" is not of the form',
        ),
        ({"agents": {"podLabels": {"a b": "x"}}}, 'agents.podLabels.a b: "a b" is not possible as a key here'),
        (
            {"apiVersion": "nodedevice.io/v1alpha1", "spec": {}},
            "apiVersion, kind: are missing; a NodeDeviceConfig begins with",
        ),
        ([1], "the document: [1] is not an object with keys"),
        ("x", 'the document: "x" is not an object with keys'),
    ],
)
def test_what_is_wrong(run: Run, tmp_path: Path, document: Any, problem: str) -> None:
    ran = run("config", "validate", _file(tmp_path, document))
    assert ran.status == 1
    assert problem in ran.out


def test_a_field_that_is_null_is_none(run: Run, tmp_path: Path) -> None:
    """As for an API server, which drops it: keys without what stood below them."""
    group = {**_GROUP, "count": None, "env": None, "select": None}
    plugins = {"simulated": None, "nvml": None, "generic": [{"resourceName": "a.io/b", "groups": [group]}]}
    document = _config({}, spec={"priority": None, "nodeSelector": None, "plugins": plugins}, status=None)
    ran = run("config", "validate", _file(tmp_path, document))
    assert ran.status == 0, ran


def test_what_an_api_server_lists(run: Run, tmp_path: Path) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}}
    kind = {**listed, "apiVersion": "nodedevice.io/v1alpha1", "kind": "NodeDeviceConfigList"}
    for each in (listed, kind):
        ran = run("config", "validate", _file(tmp_path, {**each, "items": [_generic(), _generic(cout=1)]}))
        assert "NodeDeviceConfig x is valid" in ran.out
        assert "spec.plugins.generic[0].groups[0].cout: unknown key; did you mean count?" in ran.out
        assert run("config", "validate", _file(tmp_path, {**each, "items": []})).status == 2


def test_paths_of_the_host_are_compared_with_values_that_are_checked_too(run: Run, tmp_path: Path) -> None:
    """As an agent does, with the default of the chart otherwise."""
    shadow = _generic(paths=[{"path": "/etc/shadow"}], mounts=[{"hostPath": "/opt/x"}])
    ran = run("config", "validate", _file(tmp_path, shadow))
    assert ran.status == 1
    place = "spec.plugins.generic[0].groups[0]"
    assert (
        f"{place}.paths[0].path: /etc/shadow is not below /dev; add its directory to agents.allowedHostPaths" in ran.out
    )
    assert f"{place}.mounts[0].hostPath: /opt/x is not below /dev" in ran.out
    assert (
        run("config", "validate", _file(tmp_path, shadow, {"agents": {"allowedHostPaths": ["/etc", "/opt"]}})).status
        == 0
    )
    none = run("config", "validate", _file(tmp_path, _generic(), {"agents": {"allowedHostPaths": []}}))
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


def test_what_is_in_a_file_cannot_steer(run: Run, tmp_path: Path) -> None:
    ran = run(
        "config",
        "validate",
        _file(
            tmp_path, {"a\x1b[31m\x9b": "b", "runtime": "\x1b\x07"}, {"kind": "\x1b[1m", "metadata": {"name": "\x07"}}
        ),
    )
    assert ran.status == 1
    assert not STEERING.search(ran.out + ran.err)


@pytest.mark.parametrize("more", [{}, _config({})])
def test_many_problems_are_cut(run: Run, tmp_path: Path, more: dict[str, Any]) -> None:
    ran = run("config", "validate", _file(tmp_path, {**more, **{f"k{number}": 1 for number in range(200)}}))
    assert len(ran.out.splitlines()) == config_rules.MOST + 1


def test_json(run: Run, tmp_path: Path) -> None:
    file = _file(tmp_path, {"kind": "Pod"}, {"delivery": "nri"})
    ran = run("config", "validate", file, "-o", "json")
    problem = "apiVersion, kind: only nodedevice.io/v1alpha1, NodeDeviceConfig can be checked here"
    assert ran.status == 1
    assert json.loads(ran.out) == {
        "apiVersion": "kubectl.nodedevice.io/v1alpha1",
        "kind": "ValidationReport",
        "items": [
            {"file": file, "document": "Pod (no name)", "problems": [problem]},
            {"file": file, "document": "settings of the agent", "problems": []},
        ],
    }
    assert run("config", "validate", _file(tmp_path, {"delivery": "nri"}), "-o", "json").status == 0


def test_at_a_terminal(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong is red, and where nothing is, it says what only an agent can check."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    good, bad = _file(tmp_path, {"delivery": "nri"}), str(tmp_path / "bad")
    Path(bad).write_text("delivery: docker\n")

    def shown(*names: str) -> list[str]:
        out = Terminal()
        monkeypatch.setattr("sys.stdout", out)
        run("config", "validate", *names)
        return out.getvalue().splitlines()

    right = f"\x1b[32m{good}: settings of the agent is valid\x1b[0m"
    wrong = f'{bad}: settings of the agent: delivery: "docker" is not one of auto, kubelet, none, nri'
    rest = "only an agent can check the rest: files of its host, and conflicts between configurations"
    assert shown(good) == [right, f"\x1b[90mThe schema is met; {rest}.\x1b[0m"]
    assert shown(good, bad) == [right, f"\x1b[31m{wrong}\x1b[0m"]


def test_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("delivery: nri\n"))
    assert run("config", "validate", "-").out.startswith("-: settings of the agent is valid\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8"))
    ran = run("config", "validate", "-")
    assert ran.status == 2
    assert ran.err.startswith("error: -: 'utf-8' codec can't decode byte 0xff")
    assert ran.err.endswith("; correct the file\n")


def test_a_file_that_cannot_be_checked(refused: Callable[..., CliError], tmp_path: Path) -> None:
    empty, bad = tmp_path / "empty", tmp_path / "bad"
    empty.touch()
    bad.write_bytes(b"\xff")
    remedy = "it has a NodeDeviceConfig, values or settings of the agent"
    for file, why in ((empty, ("it is empty", remedy)), (bad, ("it is not UTF-8 text", "correct the file"))):
        found = refused("config", "validate", str(file))
        assert (found.code, found.problem, found.remedy) == ("BadFile", f"{file}: {why[0]}", why[1])


def test_explain(run: Run) -> None:
    assert "groups" in run("config", "explain", "spec.plugins.generic").out
    out = run("config", "explain", "spec.plugins.generic.groups.count").out
    assert out.startswith("spec.plugins.generic.groups.count: whole number, 1 to 1000\n")
    assert run("config", "explain", "spec.plugins.generic[0].groups[12].count").out.endswith(out.partition(": ")[2])
    assert "text, one of auto" in run("config", "explain", "--agent", "delivery").out
    assert run("config", "explain").status == 0


@pytest.mark.parametrize(
    ("words", "there"),
    [
        (("spec.plugin",), "nodeSelector, plugins, priority"),
        (("spec..plugins.x.",), "generic, nvml, simulated"),
        (("x.y.z",), "apiVersion, kind, metadata, spec, status"),
        (("spec.priority.x",), "none"),
        (("--agent", "delivery.x"), "none"),
    ],
)
def test_a_field_that_does_not_exist(refused: Callable[..., CliError], words: tuple[str, ...], there: str) -> None:
    found = refused("config", "explain", *words)
    assert (found.code, found.problem) == ("NoSuchField", f"field {words[-1]} does not exist")
    assert found.remedy == f"existing fields: {there}"
