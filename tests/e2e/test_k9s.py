"""docs/k9s: its commands, typed as k9s types them on the whole product, and its columns, which the kinds have."""

import re
from collections.abc import Mapping
from typing import Any, Final

import pytest
import yaml

from hack import yaml_text
from tests.cluster.cluster import a_pod
from tests.cluster.local.stack import GPU, NODE_A, Stack
from tests.cluster.shell import shell_environment
from tests.cluster.waiting import wait_until
from tests.e2e.pages import ROOT, typed

pytestmark = pytest.mark.cluster

_FOLDER: Final = ROOT / "docs/k9s"
PLUGINS: Final[Mapping[str, Any]] = yaml.safe_load((_FOLDER / "plugins.yaml").read_text())["plugins"]
VIEWS: Final[Mapping[str, Any]] = yaml.safe_load((_FOLDER / "views.yaml").read_text())["views"]
# of a row in each view
_ROWS: Final = {
    "pods": {"NAME": "held", "NAMESPACE": "default"},
    "poddevices": {"NAME": "held", "NAMESPACE": "default"},
    "nodes": {"NAME": NODE_A},
    "nodedevices": {"NAME": f"{NODE_A}.example.com.gpu", "COL-NODE": NODE_A, "COL-RESOURCE": GPU},
}
# k9s's own, in any table: Shift with one of these sorts by a column, or goes to the end
_TAKEN: Final = {f"Shift-{letter}" for letter in "ACFGIMNOPRSTX"}


@pytest.fixture(scope="module")
def environment(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A pod holds a device, and what would page prints."""
    stack.control_plane.apply(yaml_text.dump_all([a_pod("held", "default", {GPU: 1})]))
    find_it = ("get", "poddevice", "held", "--ignore-not-found", "-o", "name")
    wait_until(lambda: stack.control_plane.kubectl(*find_it) != "", "the pod holds a device")
    folder = tmp_path_factory.mktemp("programs")
    (folder / "less").write_text("#!/bin/sh\nexec cat\n")
    (folder / "less").chmod(0o755)
    return shell_environment(stack.control_plane.admin_kubeconfig, stack.control_plane.folder, [folder])


def _filled(text: str, row: Mapping[str, str]) -> str:
    """As k9s fills it in: the longest names first."""
    for name in sorted(row, key=len, reverse=True):
        text = text.replace(f"${name}", row[name])
    assert not re.search(r"\$[A-Z]", text), text
    return text


@pytest.mark.parametrize(
    ("name", "scope"), [(name, scope) for name, plugin in PLUGINS.items() for scope in plugin["scopes"]]
)
def test_a_key_shows_something(stack: Stack, environment: dict[str, str], name: str, scope: str) -> None:
    plugin = PLUGINS[name]
    assert plugin["command"] == "sh"
    context = stack.control_plane.kubectl("config", "current-context").strip()
    flag, script = (_filled(each, {**_ROWS[scope], "CONTEXT": context}) for each in plugin["args"])
    assert flag == "-c"
    done = typed(script, environment)
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout.strip()
    assert not re.search(r"Traceback|[Uu]sage", done.stdout + done.stderr)


def test_each_plugin_has_what_k9s_asks_for() -> None:
    """Required: shortCut, description, scopes, command (k9s internal/config/json/schemas/plugins.json); and no two on one key."""
    keys = [(plugin["shortCut"], scope) for plugin in PLUGINS.values() for scope in plugin["scopes"]]
    assert len(keys) == len(set(keys))
    assert not {key for key, _ in keys} & _TAKEN
    for plugin in PLUGINS.values():
        assert {"shortCut", "description", "scopes", "command"} <= set(plugin)
        assert set(plugin["scopes"]) <= set(_ROWS)


@pytest.mark.parametrize("kind", ["nodedevices", "poddevices"])
def test_its_columns_are_those_of_the_kind(kind: str) -> None:
    view = VIEWS[f"nodedevice.io/v1alpha1/{kind}"]
    [version] = yaml.safe_load((ROOT / f"crds/{kind}.yaml").read_text())["spec"]["versions"]
    known = {"NAME", "NAMESPACE", *(column["name"].upper() for column in version["additionalPrinterColumns"])}
    assert set(view) == {"sortColumn", "columns"}
    assert set(view["columns"]) <= known
    assert view["sortColumn"].partition(":")[0] in view["columns"]
