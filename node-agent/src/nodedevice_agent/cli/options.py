"""Options of the commands other than `run`: the agent's settings, from the same file, environment and flags.

An agent's pod names its file in the environment, so a command that runs there uses the settings of that agent. --node-name is
not needed.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.settings import AgentSettings, combined

_defaults = AgentSettings()


def takes_settings(*fields: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command --config and a flag for each of these fields of Settings; it is called with `settings`.

    An error in them is one line on standard error, exit status 1.
    """

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_settings(config: Path | None, **given: Any) -> None:
            flags = {field: given.pop(field) for field in fields}
            try:
                settings = combined(config, flags)
            except AgentSettingsError as exc:
                raise click.ClickException(str(exc)) from exc
            command(settings=settings, **given)

        decorated_command: Callable[..., None] = with_settings
        for field in reversed(fields):
            decorated_command = _flag(field)(decorated_command)
        return _config(decorated_command)

    return decorated


_config = click.option(
    "--config",
    type=click.Path(path_type=Path),
    envvar="NODEDEVICE_CONFIG",
    show_envvar=True,
    help="The agent's --config. Flags and environment override it.",
)


def _flag(field: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    name = f"--{field.replace('_', '-')}"
    return click.option(
        name,
        field,
        envvar=f"NODEDEVICE_{field.upper()}",
        show_envvar=True,
        default=None,
        help=f"The agent's {name}.  [default: {getattr(_defaults, field)}]",
    )
