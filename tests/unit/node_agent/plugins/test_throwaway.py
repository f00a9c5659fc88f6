"""A plugin is its folder and its entry in plugins/settings.py: a copy of the agent gets both, and nothing else.

What is tested of the copy is in throwaway_checks.py, which a process of its own runs.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nodedevice_agent

_HERE = Path(__file__).parent
_IMPORT = "from nodedevice_agent.plugins.throwaway.settings import ThrowawaySettings\n"
_ENTRY = """\
    # Numbers, to be thrown away.
    throwaway: list[ThrowawaySettings] = []
"""


def test_a_plugin_is_its_folder_and_one_entry(tmp_path: Path) -> None:
    package = tmp_path / "nodedevice_agent"
    shutil.copytree(Path(nodedevice_agent.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(_HERE / "throwaway", package / "plugins/throwaway")
    registry = package / "plugins/settings.py"
    before, last, after = registry.read_text(encoding="utf-8").partition("    nvml: NvmlSettings | None = None\n")
    assert last
    head, first, rest = before.partition("\n\nclass ")
    registry.write_text(head + _IMPORT + first + rest + last + _ENTRY + after, encoding="utf-8")
    options = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, str(_HERE / "throwaway_checks.py")]
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
