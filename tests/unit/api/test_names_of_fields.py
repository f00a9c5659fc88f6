"""The class: names of the fields of our kinds. Each is written once, in the records, and not again where they are encoded or read.

Tests and `crds/` have them in words of their own, as evidence. Names that Kubernetes' own kinds have as well are not searched.
"""

import re
from functools import cache
from typing import Final

import pytest
from msgspec import structs
from nodedevice_api import nodedevice, poddevice
from nodedevice_api.wire import Record

from tests.unit.sources import ROOT, shown

SOURCES: Final = ("proto/src", "common/src", "kube/src", "node-agent/src", "operator/src", "hack", "tests/cluster")
OF_KUBERNETES: Final = {"nodeName", "resourceName", "lastTransitionTime", "observedGeneration", "podUID"}
# file: why it has such names
ELSEWHERE: Final = {
    "operator/src/nodedevice_operator/reconcile/cordon_restorer.py": "cordons are written back as they were stored",
    "node-agent/src/nodedevice_agent/cli/checkpoint.py": "the kubelet's checkpoint in words, which has keys of its own",
    "kube/src/nodedevice_kube/config_checks.py": "settings of the built-in plugins",
    "hack/demo": "demos print what kubectl gives",
    "hack/install/texts.py": "what kubectl gives before an uninstall",
    "tests/cluster/local/stack.py": "settings of the built-in plugins",
}


def fields() -> set[str]:
    """Of more than one word, as they are in JSON."""
    records = {each for module in (nodedevice, poddevice) for each in vars(module).values() if isinstance(each, type)}
    names = {f.encode_name for each in records if issubclass(each, Record) for f in structs.fields(each)}
    return {name for name in names if name != name.lower()} - OF_KUBERNETES


@cache
def written() -> frozenset[tuple[str, str]]:
    """File, and which name it has in quotes."""
    in_quotes = re.compile(rf"""(?<=["'])(?:{"|".join(sorted(fields()))})(?=["'])""")
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    return frozenset((shown(path), name) for path in files for name in in_quotes.findall(path.read_text("utf-8")))


def is_listed(path: str) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in ELSEWHERE)


def test_no_name_is_written_again() -> None:
    again = {f"{path}: {name}" for path, name in written() if not is_listed(path)}
    spelled = {"nodedevice": ("deviceIDs", "deviceIDsOmitted", "shareID"), "poddevice": ("shareID",)}
    of_records = {f"proto/src/nodedevice_api/{of}.py: {name}" for of, names in spelled.items() for name in names}
    assert again == of_records, "use the records of nodedevice_api"


@pytest.mark.parametrize("place", ELSEWHERE)
def test_an_exception_is_of_something(place: str) -> None:
    assert any(path == place or path.startswith(f"{place}/") for path, _ in written())
