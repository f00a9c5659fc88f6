import contextlib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nodedevice_agent.plugins.simulated.devices import SimulatedState
from nodedevice_agent.plugins.simulated.state_file import StateFileError, parse_state, read_state, write_state

PATH = Path("/state/simulated/example.com_gpu.yaml")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", SimulatedState()),
        (b"# only a comment\n", SimulatedState()),
        (
            b"unhealthy: [gpu-1]\nmissing: [gpu-3, gpu-4]\n",
            SimulatedState(frozenset({"gpu-1"}), frozenset({"gpu-3", "gpu-4"})),
        ),
        (b"count: 8", SimulatedState(count=8)),
        (b"count: 0", SimulatedState(count=0)),
        (b"unhealthy: [gpu-1, gpu-1]", SimulatedState(frozenset({"gpu-1"}))),
    ],
)
def test_good_states(content: bytes, expected: SimulatedState) -> None:
    assert parse_state(PATH, content) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"unhealthy: [gpu-1", "not YAML"),
        (b"unhealthy: gpu-1", "Expected `array`"),
        (b"unhealthy: [1]", "Expected `str`"),
        (b"unhealhty: [gpu-1]", "unknown field `unhealhty`"),
        (b"count: -1", "$.count"),
        (b"count: 1000000", "$.count"),
        (b"- gpu-1", "Expected `object`"),
        (b"\xff\xfe\xfa", "not"),
        (b"a: 2001-99-99", "not a state file"),
        (b"? [a]\n: b", "not YAML"),
        (b"!!python/object:os.system {}", "not YAML"),
        (b"[" * 20_000, "not"),
    ],
)
def test_invalid_states_name_the_file_and_the_mistake(content: bytes, message: str) -> None:
    with pytest.raises(StateFileError) as refused:
        parse_state(PATH, content)
    assert str(PATH) in str(refused.value)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value), "one log line"


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
@example(b"unhealthy: &a [*a]")
@example(b"count: 0x_")
@example(b"count: 1e999999")
@example(b"count: !!int ''")
@example(b"count: !!bool x")
@example(b"count: !!timestamp x")
@example(b"? !!float ''\n: a")
@example(b"unhealthy: &a {b: *a}")
def test_no_content_breaks_the_reader(content: bytes) -> None:
    with contextlib.suppress(StateFileError):
        assert isinstance(parse_state(PATH, content), SimulatedState)


ids = st.frozensets(st.text(min_size=1, max_size=20), max_size=5)


@given(st.builds(SimulatedState, ids, ids, st.none() | st.integers(0, 10_000)))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, state: SimulatedState) -> None:
    path = tmp_path_factory.getbasetemp() / "state.yaml"
    write_state(path, "example.com/gpu", state)
    assert read_state(path) == state


def test_a_file_that_is_too_big_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "state.yaml"
    path.write_bytes(b"#" * 2_000_000)
    with pytest.raises(StateFileError, match="bigger than"):
        read_state(path)
