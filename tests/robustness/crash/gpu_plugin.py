"""The nvml plugin as a process apart from the agent, to be killed: `python -m ….gpu_plugin SETTINGS PLUGIN_DIR STATE_DIR`.

SETTINGS: the plugins section of an agent's configuration, as a file. The driver is the fake one of the environment.
"""

import asyncio
import sys
from pathlib import Path

import msgspec
import yaml
from nodedevice_agent.plugins.run import PluginRunner
from nodedevice_agent.plugins.settings import PluginSettings

if __name__ == "__main__":
    file, plugin_dir, state_dir = map(Path, sys.argv[1:])
    runner = PluginRunner(plugin_dir, state_dir)
    runner.apply(msgspec.convert(yaml.safe_load(file.read_text()), PluginSettings))
    asyncio.run(runner.run())
