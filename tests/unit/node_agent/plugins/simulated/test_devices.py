import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice
from nodedevice_agent.plugins.simulated.devices import SimulatedState, preferred, simulated_devices, simulated_ids


def test_parts_with_health_and_presence_of_their_own_or_of_their_device() -> None:
    state = SimulatedState(frozenset({"gpu-0::1", "gpu-1"}), frozenset({"gpu-1::0", "gpu-2"}))
    assert simulated_devices(simulated_ids("gpu", 3), 2, state, 2) == (
        PluginDevice("gpu-0::0", True, (0,), parent="gpu-0"),
        PluginDevice("gpu-0::1", False, (0,), parent="gpu-0"),
        PluginDevice("gpu-1::1", False, (1,), parent="gpu-1"),
    )


def test_a_device_keeps_its_numa_node_when_others_come() -> None:
    few, many = (simulated_devices(simulated_ids("gpu", count), 3, SimulatedState()) for count in (4, 9))
    assert many[:4] == few


# two sockets, the second one smaller; h floats
NODES = {"a": (0,), "b": (0,), "c": (0,), "d": (1,), "e": (1,), "fg": (0, 1), "h": ()}


@pytest.mark.parametrize(
    ("available", "must", "size", "expected"),
    [
        pytest.param("abcde", "", 2, "de", id="the tightest node that holds all"),
        pytest.param("abcde", "", 3, "abc", id="the only node that holds all"),
        pytest.param("abcde", "", 4, "abcd", id="over two nodes, the fullest first"),
        pytest.param("abcde", "b", 2, "ba", id="near what must be included"),
        pytest.param("bcde", "d", 3, "deb", id="near first, then elsewhere"),
        pytest.param("hd", "", 2, "dh", id="no node comes last"),
        pytest.param("ab", "", 0, "", id="none"),
        pytest.param("ab", "ab", 2, "ab", id="nothing to choose"),
    ],
)
def test_preferred(available: str, must: str, size: int, expected: str) -> None:
    assert preferred(NODES, set(available) - set(must), must, size) == tuple(expected)


devices = st.dictionaries(st.sampled_from([f"gpu-{n}" for n in range(16)]), st.sampled_from([(), (0,), (1,), (0, 1)]))


@given(devices, st.data())
def test_always_exactly_the_requested_number(nodes: dict[str, tuple[int, ...]], data: st.DataObject) -> None:
    available = data.draw(st.sets(st.sampled_from(sorted(nodes)))) if nodes else set()
    must = data.draw(st.sets(st.sampled_from(sorted(available)))) if available else set()
    size = data.draw(st.integers(len(must), len(available)))
    chosen = preferred(nodes, available - must, must, size)
    assert len(chosen) == len(set(chosen)) == size
    assert must <= set(chosen) <= available
    assert preferred(nodes, available - must, sorted(must, reverse=True), size) == chosen
