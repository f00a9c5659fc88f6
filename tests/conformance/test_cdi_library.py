"""CDI specifications: the library of container runtimes itself, asked again about the table, and about random specifications."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.examples import examples, seed
from tests.oracle.cdi import table
from tests.oracle.cdi.cases import Case
from tests.unit.node_agent.lib.test_cdi_library import SAID, taken

_NUMBER: Final = {"type": "c", "major": 195, "minor": 1}
_NODE: Final = {"path": "/dev/x", "hostPath": "/dev/y", **_NUMBER, "permissions": "rw", "uid": 0}
_EDITS: Final = {
    "env": ["A=b"],
    "deviceNodes": [_NODE],
    "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro", "bind"], "type": "bind"}],
    "hooks": [{"hookName": "createContainer", "path": "/x", "args": ["x"], "env": ["A=b"], "timeout": 1}],
    "intelRdt": {"closID": "a", "schemata": ["x"], "enableMonitoring": True},
    "netDevices": [{"hostInterfaceName": "a", "name": "b"}],
    "additionalGids": [1],
}
_VERSIONS: Final = ("0.1.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "1.0.0", "v1.1.0", "1.2.0")
_ODD: Final[tuple[Any, ...]] = (
    *["a", "A=b", "=b", "v.com/c", "a/b.c", "1", "..", "é", "c", "u", "prestart", "none", "rw", "yes", "null", "0777"],
    *("", "a b", 0, 1, -1, 1.5, 1 << 32, 1 << 63, True, None, [], {}, "x" * 4096),
)
_FILES: Final = ("etc/a.json", "etc/b.yaml", "run/a.json", "run/b.yaml", "etc/c.yml")


def test_the_table_is_what_the_library_says() -> None:
    assert table.table() == SAID, "run python -m tests.oracle.cdi.table, and look at what has changed"


def test_random_specifications(tmp_path: Path) -> None:
    first = seed("CDI_SEED", in_gate=1)
    print(f"\nCDI_SEED={first}")
    chance = random.Random(first)
    cases = [_case(chance) for _ in range(examples(2000))]
    said = table.ask(cases)
    for number, (case, found) in enumerate(zip(cases, said, strict=True)):
        ours, reading = taken(tmp_path / str(number), case)
        assert ours == found["devices"], f"{json.dumps(case)}\n{found['errors']}\n{reading.problems}"
    assert 10 < sum(bool(found["devices"]) for found in said) < len(said) - 10


def _case(chance: random.Random) -> Case:
    return {chance.choice(_FILES): _text(chance) for _ in range(chance.choice((1, 1, 2, 3)))}


def _text(chance: random.Random) -> str:
    devices = [
        {"name": name, "annotations": {"a": "b"}, "containerEdits": _few(chance)} for name in chance.sample("abc", 2)
    ]
    kind = chance.choice(("v.com/c", "v.com/d"))
    version = chance.choice(_VERSIONS) if chance.random() < 0.2 else "1.1.0"
    spec: dict[str, Any] = {"cdiVersion": version, "kind": kind, "devices": devices, "containerEdits": _few(chance)}
    if chance.random() < 0.4:
        holder, key = chance.choice([*_places(spec)])
        # an entry that is null ends the library
        holder[key] = chance.choice([odd for odd in _ODD if odd is not None or not isinstance(holder, list)])
    if chance.random() < 0.1:
        holder, _ = chance.choice([place for place in _places(spec) if isinstance(place[0], dict)])
        holder[chance.choice(("unknown", "Name", "<<"))] = chance.choice(_ODD)
    if chance.random() < 0.5:
        return json.dumps(spec, indent=chance.choice((None, 2)))
    style, flow = chance.choice((None, '"', "'")), chance.choice((True, False, None))
    return yaml.safe_dump(spec, default_style=style, default_flow_style=flow, allow_unicode=chance.random() < 0.5)


def _few(chance: random.Random) -> Any:
    """Edits, a copy."""
    return json.loads(json.dumps({key: _EDITS[key] for key in chance.sample(sorted(_EDITS), chance.randint(1, 3))}))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in [*value] if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])
