"""The commands of built-in plugins: changes by an administrator in the plugins of a running agent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from nodedevice_agent.cli.options import OneLineErrors, takes_settings
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.plugins.contract import CommandFailed, part
from nodedevice_agent.settings import AgentSettings


class _PluginErrors(OneLineErrors):
    mistakes = (AgentSettingsError, CommandFailed)


def commands_of(kind: str) -> click.Group:
    group: click.Group = part(kind, "commands").group
    commands = {name: _on_node(command) for name, command in group.commands.items()}
    return _PluginErrors(group.name, commands, help=group.help)


def _on_node(command: click.Command) -> click.Command:
    """The same command, which gets the agent's state directory from the agent's settings."""
    run: Callable[..., None] | None = command.callback
    assert run is not None

    def on_node(settings: AgentSettings, **given: Any) -> None:
        run(Path(settings.state_dir), **given)

    made = click.command(command.name, help=command.help)(takes_settings("state_dir")(on_node))
    made.params += command.params
    return made
