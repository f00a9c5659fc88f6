"""What the commands beside `run` know of the agent: its own settings, from the same file, environment and flags.

An agent's pod names its file in the environment, so a command that is run there finds what that agent works with. Which node it
is need not be said.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from nodedevice_agent.errors import SettingsError
from nodedevice_agent.settings import Settings, combined

_defaults = Settings()


def takes_settings(*fields: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with --config and a flag for each of these fields of Settings; it is called with `settings`.

    What is wrong with them is one line on standard error, exit status 1.
    """

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_settings(config: Path | None, **given: Any) -> None:
            said = {field: given.pop(field) for field in fields}
            try:
                settings = combined(config, {field: value for field, value in said.items() if value is not None})
            except SettingsError as exc:
                raise click.ClickException(str(exc)) from exc
            command(settings=settings, **given)

        whole: Callable[..., None] = with_settings
        for field in reversed(fields):
            whole = _flag(field)(whole)
        return _config(whole)

    return decorated


_config = click.option(
    "--config",
    type=click.Path(path_type=Path),
    envvar="NODEDEVICE_CONFIG",
    show_envvar=True,
    help="The agent's --config. Flags and environment win.",
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
