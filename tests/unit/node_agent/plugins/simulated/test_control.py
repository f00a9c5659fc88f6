from pathlib import Path

import pytest
from nodedevice_agent.plugins.simulated.control import SimulateError, set_health, set_missing, show
from nodedevice_agent.plugins.simulated.state_file import Listing, simulated_dir, state_path, write_listing

GPU = "example.com/gpu"


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    simulated_dir(tmp_path).mkdir()
    write_listing(tmp_path, Listing(GPU, ["gpu-0", "gpu-1"]))
    return tmp_path


def test_break_remove_and_restore(state_dir: Path) -> None:
    set_health(state_dir, GPU, "gpu-0", healthy=False)
    set_missing(state_dir, GPU, "gpu-1", missing=True)
    assert show(state_dir, GPU) == {"gpu-0": "unhealthy", "gpu-1": "missing"}
    set_health(state_dir, GPU, "gpu-0", healthy=True)
    set_missing(state_dir, GPU, "gpu-1", missing=False)
    assert show(state_dir, GPU) == {"gpu-0": "healthy", "gpu-1": "healthy"}


def test_an_unchanged_state_is_not_written_again(state_dir: Path) -> None:
    set_health(state_dir, GPU, "gpu-0", healthy=False)
    before = state_path(state_dir, GPU).stat()
    set_health(state_dir, GPU, "gpu-0", healthy=False)
    assert state_path(state_dir, GPU).stat() == before


@pytest.mark.parametrize("change", [set_health, set_missing])
def test_errors_for_unknown_names_list_the_known_ones(state_dir: Path, change: object) -> None:
    assert callable(change)
    with pytest.raises(SimulateError, match="'gpu-9'; it has gpu-0, gpu-1"):
        change(state_dir, GPU, "gpu-9", True)
    with pytest.raises(SimulateError, match=r"'example.com/tpu'.*simulated here: example.com/gpu"):
        change(state_dir, "example.com/tpu", "gpu-0", True)
    assert not state_path(state_dir, GPU).exists()


def test_where_nothing_is_simulated(tmp_path: Path) -> None:
    with pytest.raises(SimulateError, match="nothing is simulated here"):
        show(tmp_path, GPU)


def test_a_broken_state_is_not_overwritten(state_dir: Path) -> None:
    state_path(state_dir, GPU).write_text("unhealthy: [\n")
    with pytest.raises(SimulateError, match="correct the file or delete it"):
        set_health(state_dir, GPU, "gpu-0", healthy=False)
    assert state_path(state_dir, GPU).read_text() == "unhealthy: [\n"


def test_a_broken_listing_names_the_remedy(state_dir: Path) -> None:
    (simulated_dir(state_dir) / "x.devices.json").write_text("{")
    with pytest.raises(SimulateError, match="restart the agent"):
        show(state_dir, GPU)
