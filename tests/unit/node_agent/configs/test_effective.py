"""Which plugins a node has: layers, priorities, refusals with a remedy, and the report that fits on a Lease."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from nodedevice_agent.configs.effective import MAX_REPORT, Config, Effective, Outcome, effective, report, unmatched
from nodedevice_agent.configs.kept import config_of
from nodedevice_agent.kube.objects import GenerationMetadata, NodeDeviceConfigObject
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings

SERIAL, GPU = "example.com/serial", "nvidia.com/gpu"
DEV = ("/dev",)
NOBODY = PluginSettings()


def serial(path: str = "/dev/ttyUSB*", name: str = SERIAL, **more: Any) -> dict[str, Any]:
    return {"generic": [{"resourceName": name, "groups": [{"paths": [{"path": path}], **more}]}]}


def config(name: str = "a", plugins: Any = None, priority: int = 0, **selector: str) -> Config:
    return Config(name, 1, priority, selector, text(serial() if plugins is None else plugins))


def simulated(name: str, **more: Any) -> dict[str, Any]:
    return {"simulated": [{"resourceName": name, **more}]}


def text(plugins: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(plugins))


def decided(*configs: Config, base: PluginSettings = NOBODY, **labels: str) -> Effective:
    return effective(base, configs, labels, DEV)


def names(plugins: PluginSettings) -> tuple[str, ...]:
    return tuple(name for _, _, plugin in plugins.each() for name in plugin.names())


def test_only_what_selects_the_node_counts() -> None:
    found = decided(config("a", pool="x"), config("b", serial(name="example.com/b"), pool="y"), pool="y")
    assert (list(found.outcomes), names(found.plugins)) == (["b"], ("example.com/b",))
    assert not decided(config(pool="x")).outcomes
    assert names(decided(config()).plugins) == (SERIAL,), "an empty selector selects every node"


@pytest.mark.parametrize(("priorities", "owner"), [((0, 1), "b"), ((1, 0), "a"), ((0, 0), "a")])
def test_a_resource_is_of_the_higher_priority_then_of_the_first_name(priorities: tuple[int, int], owner: str) -> None:
    pairs = zip("ab", priorities, strict=True)
    found = decided(*(config(name, serial(f"/dev/{name}"), priority) for name, priority in pairs))
    other = "b" if owner == "a" else "a"
    assert found.plugins.generic[0].groups[0].paths[0].path == f"/dev/{owner}"
    assert found.outcomes == {owner: Outcome(1), other: Outcome(1, lost=((SERIAL, owner),))}


def test_a_name_of_the_files_instances_is_theirs_in_the_file_too() -> None:
    instance = serial(name="nvidia.com/mig-1g.10gb")["generic"]
    found = decided(base=msgspec.convert({"nvml": {"mig": "mixed"}, "generic": instance}, PluginSettings))
    assert (found.plugins.generic, found.outcomes) == ([], {})
    assert found.plugins.nvml is not None


BUILT_IN = f"built-in {SERIAL}"
BAD_PATH = serial("/etc/shadow")


@pytest.mark.parametrize(
    ("find", "is_named"),
    [
        pytest.param(lambda: decided(config()), True, id="a configuration"),
        pytest.param(lambda: decided(base=PluginSettings(simulated=[SimulatedSettings(SERIAL)])), True, id="the file"),
        pytest.param(decided, False, id="none"),
        pytest.param(lambda: decided(config(pool="x"), pool="y"), False, id="one of other nodes"),
        pytest.param(lambda: decided(config("a", serial(name="example.com/x"))), False, id="one of another resource"),
        pytest.param(lambda: decided(config("a", BAD_PATH)), True, id="one that is refused"),
        pytest.param(lambda: decided(config("a", BAD_PATH, pool="x"), pool="y"), False, id="a refused one elsewhere"),
        pytest.param(lambda: decided(config("a", simulated(SERIAL, counts=1))), True, id="a typo"),
        pytest.param(lambda: decided(config("a", simulated("x"))), False, id="a refused one of another"),
        pytest.param(lambda: decided(config("a", {"nvml": {"typo": 1}})), False, id="one of GPUs that is refused"),
        pytest.param(lambda: structs.replace(decided(), is_known=False), True, id="they are not known yet"),
    ],
)
def test_what_the_configuration_names(find: Callable[[], Effective], is_named: bool) -> None:
    assert find().names(SERIAL, BUILT_IN) is is_named


@pytest.mark.parametrize(
    ("plugins", "name", "is_named"),
    [
        pytest.param({"nvml": {}}, GPU, True, id="GPUs"),
        pytest.param({"nvml": {}}, "nvidia.com/mig-1g.5gb", False, id="no instances"),
        pytest.param({"nvml": {"mig": "mixed"}}, "nvidia.com/mig-1g.5gb", True, id="instances by their profiles"),
        pytest.param({"nvml": {"resourceName": "nvidia.com/a100"}}, GPU, False, id="GPUs by another name"),
        pytest.param({"nvml": {"typo": 1}}, "nvidia.com/mig-1g.5gb", True, id="refused: any name of GPUs"),
        pytest.param({"nvml": None}, GPU, False, id="none"),
        pytest.param(serial(), GPU, False, id="a configuration without them"),
    ],
)
def test_which_names_of_gpus_it_names(plugins: Any, name: str, is_named: bool) -> None:
    assert decided(config("a", plugins)).names(name, "built-in GPUs") is is_named


@pytest.mark.parametrize(
    "plugins", [7, [], {"generic": 7}, {"generic": [7]}, {"simulated": [{"resourceName": 7}]}, {"generic": [{}]}]
)
def test_what_cannot_be_read_names_nothing(plugins: Any) -> None:
    found = decided(config("a", plugins))
    assert found.outcomes["a"].refusal
    assert not found.names(SERIAL, BUILT_IN)


def test_the_file_is_the_lowest_layer() -> None:
    both = [SimulatedSettings(SERIAL), SimulatedSettings("example.com/x")]
    base = PluginSettings(simulated=both, nvml=NvmlSettings(), host_root="/host")
    found = decided(config("a"), base=base).plugins
    assert [each.resource_name for each in (*found.generic, *found.simulated)] == [SERIAL, "example.com/x"]
    assert len(found.generic) == 1
    assert (found.nvml, found.host_root) == (NvmlSettings(), "/host")
    assert decided(base=base).plugins == base


def test_a_resource_has_the_rank_of_the_layer_that_it_belongs_to() -> None:
    """The higher priority first, the agent's file last; a configuration that is refused, or has lost the name, changes nothing."""
    base = PluginSettings(simulated=[SimulatedSettings(SERIAL), SimulatedSettings("a.b/file")], nvml=NvmlSettings())
    both = {"simulated": [{"resourceName": SERIAL}, {"resourceName": "example.com/low"}]}
    good = config("a", priority=5), config("b", both, -3), config("c", serial(name="example.com/too"), 5)
    found = decided(*good, config("bad", BAD_PATH, 9), base=base).ranks
    assert sorted(found, key=lambda name: (found[name], name)) == [
        SERIAL, "example.com/too", "example.com/low", "a.b/file", "nvidia.com/gpu", "nvml",
    ]  # fmt: skip
    assert found[SERIAL] == found["example.com/too"]
    assert found["a.b/file"] > 2**31 - 1, "behind any priority"


B = {"resourceName": "nvidia.com/b"}


def test_gpus_are_one_plugin_which_one_configuration_has() -> None:
    nine = config("a", {"nvml": {"pollSeconds": 9}}, 1)
    found = decided(nine, config("b", {"nvml": {}}), config("c", serial(name=GPU)))
    assert found.plugins.nvml == NvmlSettings(poll_seconds=9)
    assert (found.outcomes["b"].lost, found.outcomes["c"].lost) == ((("nvml", "a"),), ((GPU, "a"),))
    lost = decided(config("a", {"nvml": {}}, 2), config("b", serial(name="nvidia.com/b"), 1), config("c", {"nvml": B}))
    assert lost.outcomes["c"].lost == (("nvml", "a"),), "to whom the GPUs are"
    mixed = decided(config("a", {"nvml": {"mig": "mixed"}}, 1), config("c", serial(name="nvidia.com/mig-1g.10gb")))
    assert mixed.outcomes["c"].lost == (("nvidia.com/mig-1g.10gb", "a"),)


def test_names_of_what_is_refused_are_named_all_the_same() -> None:
    """A mistake in a configuration is no reason to end what it names."""
    of_files = [*serial(name="example.com/a")["generic"], 7, {"resourceName": "example.com/b", "typo": 1}]
    plugins = {"nvml": {"typo": 1}, "generic": of_files, **simulated("example.com/c")}
    assert decided(config("a", plugins)).refused == {"nvml", "example.com/a", "example.com/b", "example.com/c"}


LIBRARY = {"nvml": {"sharing": [{"memory": {"limits": {"library": "/usr/local/vgpu/libvgpu.so"}}}]}}


@pytest.mark.parametrize(
    ("plugins", "words"),
    [
        (
            serial("/etc/shadow"),
            "spec.plugins.generic[0].groups[0].paths[0].path: /etc/shadow is not below /dev; add its directory to agents.",
        ),
        (serial("/devices/x"), "path: /devices/x is not below /dev"),
        (serial("/dev/../etc/shadow"), "must be a plain path"),
        (serial(mounts=[{"hostPath": "/etc"}]), "hostPath: /etc is not below /dev"),
        (serial(path="ttyUSB0"), "must be an absolute path"),
        ({"generics": []}, "spec.plugins.generics: unknown key; did you mean generic?"),
        ({"hostRoot": "/x"}, "spec.plugins.hostRoot: unknown key"),
        ("none", 'spec.plugins: "none" is not an object with keys'),
        (None, ""),
        ({"generic": serial()["generic"] * 2}, "is named twice"),
        ({"nvml": {}, "simulated": [{"resourceName": GPU}]}, "is named twice"),
        ({"nvml": {"libraryDir": "/tmp/evil"}}, "is not allowed in a NodeDeviceConfig"),
        (LIBRARY, "library: /usr/local/vgpu/libvgpu.so is not below /dev"),
        ({"nvml": {"sharing": [{"memory": {}}]}}, ""),
        ({"simulated": [{"resourceName": "kubernetes.io/x"}]}, "is reserved"),
        (
            {"generics": [], "simulated": 1},
            "2 mistakes: spec.plugins.generics: unknown key; did you mean generic?; spec.",
        ),
    ],
)
def test_what_is_not_valid_is_refused_whole_with_the_remedy(plugins: Any, words: str) -> None:
    base = PluginSettings(simulated=[SimulatedSettings("example.com/x")])
    bad = Config("bad", 3, 9, {}, text(plugins if plugins is not None else {}))
    found = decided(bad, config("good", serial(name="example.com/good")), base=base)
    assert words in found.outcomes["bad"].refusal
    assert bool(found.outcomes["bad"].refusal) == bool(words)
    assert found.outcomes["bad"].generation == 3
    assert {"example.com/good", "example.com/x"} <= set(names(found.plugins))
    assert "\n" not in found.outcomes["bad"].refusal


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("nodeSelectr", "spec.nodeSelectr: unknown key; did you mean nodeSelector?"),
        ("x", "spec.x: unknown key; known: nodeSelector, plugins, priority"),
        ("plugins", ""),
    ],
)
def test_a_mistyped_key_of_spec_is_refused_as_one_below_it(key: str, words: str) -> None:
    """A mistyped selector is none, which selects every node."""
    metadata = GenerationMetadata(name="a", generation=1)
    stored = NodeDeviceConfigObject(metadata=metadata, spec=text({"plugins": serial(), key: serial()}))
    found = decided(config_of(stored))
    assert words in found.outcomes["a"].refusal
    assert bool(found.outcomes["a"].refusal) == bool(words)


def test_without_directories_of_the_chart_no_path_is_allowed() -> None:
    [outcome] = effective(NOBODY, [config()], {}, ()).outcomes.values()
    assert "path: /dev/ttyUSB* is not below nothing; add its directory" in outcome.refusal


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"priority": 7, "plugins": 1, "nodeSelector": {"a": "b"}}, (7, {"a": "b"}, 1)),
        ({"priority": -(2**31)}, (-(2**31), {}, None)),
        ({"priority": 2**31}, (0, {}, None)),
        ({"priority": "7"}, (0, {}, None)),
        # what nobody can mean selects no node
        ({"nodeSelector": {"a": 1}}, (0, {"": ""}, None)),
        ({"nodeSelector": 7}, (0, {"": ""}, None)),
        ([], (0, {}, None)),
        ("text", (0, {}, None)),
    ],
)
def test_an_object_of_any_shape_is_a_configuration(spec: Any, wanted: tuple[int, dict[str, str], Any]) -> None:
    found = config_of(NodeDeviceConfigObject(metadata=GenerationMetadata(name="a", generation=3), spec=text(spec)))
    assert (found.name, found.generation, found.keys) == ("a", 3, tuple(sorted(spec)) if isinstance(spec, dict) else ())
    assert (found.priority, found.node_selector, msgspec.json.decode(found.plugins)) == wanted


def test_a_path_is_allowed_below_what_the_pod_has() -> None:
    assert not effective(NOBODY, [config("a", serial("/opt/x/y"))], {}, ("/dev", "/opt/x/")).outcomes["a"].refusal


def test_the_report_says_generation_refusal_and_loss() -> None:
    outcomes = {"a": Outcome(2), "b": Outcome(1, "no"), "c": Outcome(1, lost=((SERIAL, "a"),))}
    assert json.loads(report(outcomes)) == {
        "a": {"generation": 2},
        "b": {"generation": 1, "refusal": "no"},
        "c": {"generation": 1, "lost": {SERIAL: "a"}},
    }
    assert report({}) == ""


def test_the_report_gives_up_details_when_they_have_no_room() -> None:
    """Compact; whole while it fits, then with short sentences, then with a word for each refusal."""

    def reported(refusal: str, count: int) -> str:
        return report({f"c{number:02}": Outcome(1, refusal, ((SERIAL, "a"),)) for number in range(count)})

    assert reported("no", 1) == '{"c00":{"generation":1,"refusal":"no","lost":{"example.com/serial":"a"}}}'
    assert len(reported("x" * 600, 1)) == len(reported("", 1)) + len(',"refusal":""') + 500
    assert json.loads(reported("x" * 200, 10))["c09"]["refusal"] == "x" * 60
    found = json.loads(reported("x" * 200, 30))
    assert found["c29"] == {"generation": 1, "refusal": "refused", "lost": {}}


def test_groups_without_a_device_are_reported_by_their_place_once_they_are_known() -> None:
    two = {"generic": [*serial()["generic"], *serial("/dev/x", "example.com/x")["generic"]]}
    found = decided(config("a", priority=1), config("b", two), base=PluginSettings(simulated=[]))
    place = "spec.plugins.generic[1].groups[0] (/dev/x)"
    assert unmatched(found, {SERIAL: (), "example.com/x": (0,)}) == {"a": (), "b": (place,)}
    assert unmatched(found, {SERIAL: (0,)}) == {"a": ("spec.plugins.generic[0].groups[0] (/dev/ttyUSB*)",), "b": None}
    reported = json.loads(report(found.outcomes, {"a": (), "b": (place,)}))
    assert [each.get("unmatched", "nothing") for each in reported.values()] == ["nothing", [place]]
    assert json.loads(report(found.outcomes, {"b": None}))["b"]["unmatched"] is None


any_outcome = st.builds(Outcome, st.integers(1), st.text(max_size=900), st.just(((SERIAL * 10, "x" * 253),) * 3))


@given(st.dictionaries(st.text("abc-.", min_size=1, max_size=253), any_outcome, max_size=60))
def test_no_report_is_longer_than_its_bound(outcomes: dict[str, Outcome]) -> None:
    text = report(outcomes)
    assert len(text.encode()) <= MAX_REPORT
    assert json.loads(text or "{}").keys() <= outcomes.keys()
    refused = {name for name, outcome in json.loads(text or "{}").items() if "refusal" in outcome}
    assert refused == {name for name in json.loads(text or "{}") if outcomes[name].refusal}
