"""Files that people write, and those that an agent wrote and a disk damaged: taken, or refused with a sentence that says why."""

from pathlib import Path
from typing import Any

import msgspec
import yaml
from hypothesis import strategies as st
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.lib.deviceplugin_server.server import device_to_wire
from nodedevice_agent.plugins.generic.devices import generic_devices
from nodedevice_agent.plugins.generic.offers import choose
from nodedevice_agent.plugins.nvml import boot_memory as memory
from nodedevice_agent.plugins.nvml.devices import device_of
from nodedevice_agent.plugins.nvml.driver_troubles import Reading, Trouble
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.health import HealthRules
from nodedevice_agent.plugins.nvml.node_gpus import Fleet, Remembered
from nodedevice_agent.plugins.simulated.control import (
    Listing,
    StateFileError,
    read_listings,
    read_state,
    simulated_dir,
    write_listing,
)
from nodedevice_agent.plugins.simulated.devices import simulated_devices, simulated_ids
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.settings import AgentSettings, load

from tests.robustness.fuzz.budget import Fuzzer
from tests.robustness.fuzz.inputs import as_json, mostly, nearly, shaped, some, texts, values

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
# invalid text inside a string, depth, and half a character
_ODD_JSON = [
    b'{"boot_id": "\xff"}',
    b'{"resourceName": "\xff"}',
    b'{"x":' + b"[" * 100_000,
    b'{"boot_id": "\\ud800", "gpus": []}',
    b"",
    b"null",
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
        except AgentSettingsError as wrong:
            _progress(str(wrong))
            return
        assert isinstance(found, AgentSettings)
        for generic in found.plugins.generic:
            generic_devices(generic.groups, choose(generic.groups, {}, {}).listed)

    fuzz(check, st.one_of(nearly([_CONFIG]), st.sampled_from(_ODD_YAML), st.one_of(_config, values).map(as_json)))


def test_any_state_file(fuzz: Fuzzer, tmp_path: Path) -> None:
    file = tmp_path / "gpu.yaml"
    settings = SimulatedSettings("example.com/gpu", 4)

    def check(content: bytes) -> None:
        file.write_bytes(content)
        try:
            state = read_state(file)
        except StateFileError as wrong:
            _progress(str(wrong))
            return
        ids = simulated_ids(settings.prefix(), settings.count if state.count is None else state.count)
        simulated_devices(ids, settings.numa_nodes, state)

    keys: dict[str, Any] = {"unhealthy": some(texts), "missing": some(texts), "count": st.integers(-1, 10**5)}
    fuzz(check, st.one_of(nearly([_STATE]), st.sampled_from(_ODD_YAML), shaped(keys).map(as_json)))


def test_any_memory_of_gpus(fuzz: Fuzzer, tmp_path: Path) -> None:
    """What is taken can be listed, and written again."""
    file = memory.gpu_dir(tmp_path) / "remembered.json"
    store = memory.Memory(tmp_path)
    mark = Trouble("Xid79", "reset it")
    gpu = Gpu("GPU-a", "Tesla T4", 1 << 34, "0000:1b:00.0", 0, 1, ("ecc",))
    store.write((Remembered(gpu, mark, True, Reading(energy_mj=7, ecc_uncorrected=1, recovery_action=0), 1),))
    written = file.read_bytes()

    def check(content: bytes) -> None:
        file.write_bytes(content)
        try:
            known = memory.read(tmp_path)
        except memory.MemoryUnreadable as wrong:
            _progress(str(wrong))
            return
        fleet = Fleet(HealthRules(), known)
        for uuid, each in fleet.gpus.items():
            device_to_wire(device_of(each, fleet.trouble_of(uuid)))
        store.write(fleet.remembered())

    boot_id = msgspec.json.decode(written)["boot_id"]
    reported = shaped({"uuid": mostly(st.just("GPU-b"), texts), "model": texts, "numa_node": st.integers(-1, 1 << 70)})
    remembered = shaped(
        {"gpu": reported, "mark": shaped({"reason": texts, "message": texts}), "is_away": st.booleans()}
    )
    whole = shaped({"boot_id": st.just(boot_id), "gpus": some(remembered)}).map(as_json)
    fuzz(check, st.one_of(nearly([written]), st.sampled_from(_ODD_JSON), whole))


def test_any_listing_of_simulated_devices(fuzz: Fuzzer, tmp_path: Path) -> None:
    simulated_dir(tmp_path).mkdir()
    write_listing(tmp_path, Listing("example.com/gpu", ["gpu-0", "gpu-1"]))
    (file,) = simulated_dir(tmp_path).iterdir()
    written = file.read_bytes()

    def check(content: bytes) -> None:
        file.write_bytes(content)
        try:
            read_listings(tmp_path)
        except StateFileError as wrong:
            _progress(str(wrong))

    fuzz(check, st.one_of(nearly([written]), st.sampled_from(_ODD_JSON), values.map(as_json)))


def _progress(sentence: str) -> None:
    """It goes to a terminal or a log."""
    assert sentence
    assert len(sentence) < 5000, len(sentence)
    sentence.encode()
