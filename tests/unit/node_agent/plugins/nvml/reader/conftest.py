"""The fake NVML library in this process."""

from collections.abc import Iterator

import pytest

from tests.fakes.loaded_nvml import LoadedNvml


@pytest.fixture(scope="session")
def loaded_nvml(tmp_path_factory: pytest.TempPathFactory) -> LoadedNvml:
    """The library follows one folder, as long as the process runs."""
    return LoadedNvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(loaded_nvml: LoadedNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadedNvml]:
    """One GPU: GPU-a."""
    loaded_nvml.begin(monkeypatch)
    yield loaded_nvml
    loaded_nvml.end()
