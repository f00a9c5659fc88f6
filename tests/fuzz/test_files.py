"""Files that people write, settings and the state of simulated devices: taken, or refused with a sentence that says why."""

from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st
from nodedevice_agent.errors import SettingsError
from nodedevice_agent.plugins.core.simulated import simulated_devices, simulated_ids
from nodedevice_agent.plugins.settings import SimulatedSettings
from nodedevice_agent.plugins.state_file import StateFileError, read_state
from nodedevice_agent.settings import Settings, load

from tests.fuzz.budget import Fuzzer
from tests.fuzz.inputs import as_json, mostly, nearly, shaped, some, texts, values

_CONFIG = yaml.safe_dump(
    {
        "nodeName": "node-a",
        "pluginDir": "/var/lib/nodedevice/device-plugins",
        "logLevel": "debug",
        "plugins": {
            "simulated": [{"resourceName": "example.com/gpu", "count": 4, "numaNodes": 2, "idPrefix": "gpu"}],
            "generic": [
                {
                    "resourceName": "example.com/serial",
                    "groups": [{"paths": [{"path": "/dev/ttyUSB*"}], "count": 2, "env": {"A": "b"}}],
                }
            ],
        },
    }
).encode()
_STATE = b"# by hand\nunhealthy: [gpu-0, gpu-1]\nmissing:\n- gpu-2\ncount: 5\n"
# What parsers stumble over: bombs of aliases, lists that hold themselves, depth, odd dates and numbers, tags.
_ODD_YAML = [
    b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
    b"&a [*a]",
    b"unhealthy: &a [*a]",
    b"[" * 3000,
    b"{a: " * 2000,
    b"count: 2001-02-30",
    b"count: 0b",
    b"count: 0o",
    b"count: .inf",
    b"count: 1_0:99:99",
    b"? [a]\n: b",
    b"!!python/object/apply:os.system [true]",
    b"!!binary x",
    b"<<: 1",
    b"\xff\xfe",
    b"a: 1\n---\nb: 2",
    b"=: =",
]

_path = shaped({"path": mostly(st.just("/dev/null"), texts), "mountPath": texts, "permissions": texts})
_group = shaped(
    {"paths": some(_path), "count": st.integers(-1, 2000), "env": st.dictionaries(texts, texts, max_size=2)}
)
_generic = shaped({"resourceName": mostly(st.just("example.com/a"), texts), "groups": some(_group)})
_simulated = shaped({"resourceName": mostly(st.just("example.com/b"), texts), "count": st.integers(-1, 10**6)})
_config = shaped(
    {
        "nodeName": mostly(st.just("node-a"), texts),
        "plugins": shaped({"generic": some(_generic), "simulated": some(_simulated)}),
    }
)


def test_any_config_file(fuzz: Fuzzer, tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"

    def check(content: bytes) -> None:
        file.write_bytes(content)
        try:
            found = load(file, {})
        except SettingsError as wrong:
            _say(str(wrong))
            return
        assert isinstance(found, Settings)
        for generic in found.plugins.generic:
            generic.device_groups()

    fuzz(check, st.one_of(nearly([_CONFIG]), st.sampled_from(_ODD_YAML), st.one_of(_config, values).map(as_json)))


def test_any_state_file(fuzz: Fuzzer, tmp_path: Path) -> None:
    file = tmp_path / "gpu.yaml"
    settings = SimulatedSettings("example.com/gpu", 4)

    def check(content: bytes) -> None:
        file.write_bytes(content)
        try:
            state = read_state(file)
        except StateFileError as wrong:
            _say(str(wrong))
            return
        ids = simulated_ids(settings.prefix(), settings.count if state.count is None else state.count)
        simulated_devices(ids, settings.numa_nodes, state)

    keys: dict[str, Any] = {"unhealthy": some(texts), "missing": some(texts), "count": st.integers(-1, 10**5)}
    fuzz(check, st.one_of(nearly([_STATE]), st.sampled_from(_ODD_YAML), shaped(keys).map(as_json)))


def _say(sentence: str) -> None:
    """It goes to a terminal or a log."""
    assert sentence
    assert len(sentence) < 5000, len(sentence)
    sentence.encode()
