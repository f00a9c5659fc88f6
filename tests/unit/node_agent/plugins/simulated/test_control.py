import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.plugins.contract import CommandFailed
from nodedevice_agent.plugins.simulated.control import (
    Listing,
    StateFileError,
    parse_state,
    read_state,
    set_health,
    set_missing,
    show,
    simulated_dir,
    state_path,
    write_listing,
)
from nodedevice_agent.plugins.simulated.devices import SimulatedState
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource

GPU = "example.com/gpu"


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    simulated_dir(tmp_path).mkdir()
    write_listing(tmp_path, Listing(GPU, ["gpu-0", "gpu-1"]))
    return tmp_path


def test_a_part_is_as_its_device(state_dir: Path) -> None:
    write_listing(state_dir, Listing(GPU, ["gpu-0", "gpu-1", "gpu-0::0", "gpu-0::1", "gpu-1::0", "gpu-1::1"]))
    set_health(state_dir, GPU, "gpu-0", healthy=False)
    set_missing(state_dir, GPU, "gpu-1::1", missing=True)
    shown = show(state_dir, GPU)
    parts = {"0::0": "unhealthy", "0::1": "unhealthy", "1::0": "healthy", "1::1": "missing"}
    assert {part: shown[f"gpu-{part}"] for part in parts} == parts


@pytest.mark.parametrize("change", [set_health, set_missing])
def test_errors_for_unknown_names_list_the_known_ones(state_dir: Path, change: Callable[..., None]) -> None:
    with pytest.raises(CommandFailed, match="'gpu-9'; it has gpu-0, gpu-1"):
        change(state_dir, GPU, "gpu-9", True)
    with pytest.raises(CommandFailed, match=r"'example.com/tpu'.*simulated here: example.com/gpu"):
        change(state_dir, "example.com/tpu", "gpu-0", True)
    assert not state_path(state_dir, GPU).exists()


def test_a_broken_state_is_not_overwritten(state_dir: Path) -> None:
    state_path(state_dir, GPU).write_text("unhealthy: [\n")
    with pytest.raises(CommandFailed, match="correct the file or delete it"):
        set_health(state_dir, GPU, "gpu-0", healthy=False)
    assert state_path(state_dir, GPU).read_text() == "unhealthy: [\n"


PATH = Path("/state/simulated/example.com_gpu.yaml")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", SimulatedState()),
        (b"unhealthy: [gpu-1]\nmissing: [a, b]\n", SimulatedState(frozenset({"gpu-1"}), frozenset({"a", "b"}))),
        (b"count: 8", SimulatedState(count=8)),
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
        (b"unhealhty: [gpu-1]", "unknown field `unhealhty`"),
        (b"count: -1", "$.count"),
        (b"\xff\xfe\xfa", "not"),
        (b"a: 2001-99-99", "not a state file"),
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


def test_a_file_that_is_too_big_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "state.yaml"
    path.write_bytes(b"#" * 2_000_000)
    with pytest.raises(StateFileError, match="bigger than"):
        read_state(path)


async def test_a_source_lists_what_its_state_file_says_and_makes_one_where_there_is_none(tmp_path: Path) -> None:
    state_dir = tmp_path / "not/there"
    with FileWatcher() as watcher:
        for broken in (set[str](), {"gpu-0"}):
            # another one each time, as after a restart
            source = SimulatedSource(SimulatedSettings(GPU, 2), state_dir, watcher)
            if broken:
                set_health(state_dir, GPU, "gpu-0", healthy=False)
            await source.read()
            assert {device.id for device in source.devices.latest if not device.is_healthy} == broken
            assert {device.id for device in source.devices.latest} == {"gpu-0", "gpu-1"}
    assert state_path(state_dir, GPU).is_file()
