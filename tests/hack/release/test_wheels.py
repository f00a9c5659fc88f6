"""Wheels in a clean virtual environment, installed by pip as the pages say: both commands are there, and what belongs to them."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hack.release import distributions

_ROOT = Path(__file__).parents[3]
_VERSION = yaml.safe_load((_ROOT / "charts/nodedevice/Chart.yaml").read_text())["version"]
_PROGRAMS = ("nodedevice-agent", "nodedevice-operator")

pytestmark = pytest.mark.parametrize("program", _PROGRAMS)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the commands of an environment with nothing but our wheels and what they depend on."""
    folder = tmp_path_factory.mktemp("wheels")
    built = distributions.build(_ROOT, folder / "dist", epoch=1_700_000_000)
    _output(sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"))
    wheels = [str(path) for path in built if path.suffix == ".whl"]
    # this environment's pip: in twice the time, the one that Python comes with would do the same
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv"), "install", "--quiet"]
    done = subprocess.run([*pip, *wheels], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "venv/bin"


def test_says_its_version_and_helps(programs: Path, program: str) -> None:
    assert _output(str(programs / program), "--version") == f"{program}, version {_VERSION}\n"
    assert _output(str(programs / program), "--help").startswith(f"Usage: {program} ")
    assert _output(str(programs / program), "run", "--help").startswith(f"Usage: {program} run ")


def _output(*command: str) -> str:
    """Nothing of this project's own environment gets in."""
    return subprocess.run(command, check=True, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}).stdout
