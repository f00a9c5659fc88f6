"""What the programs that run until a signal share: an option for each of their settings, and their exit status."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import click
import msgspec

from nodedevice_operator.errors import CredentialsError, OperatorSettingsError, StaleWatch, TaskEnded

_USAGE_ERROR: Final = 2
_RESTART: Final = 1

SETTINGS: Final = {"auto_envvar_prefix": "NODEDEVICE", "show_default": True}
Command = Callable[..., None]


def takes_settings(kind: type[msgspec.Struct], **metavars: str) -> Callable[[Command], Command]:
    """Adds --config, and an option for each setting, explained as in the structure. An absent one: None."""

    def decorated(command: Command) -> Command:
        hints, texts = get_type_hints(kind, include_extras=True), _texts(kind)
        for field in reversed(msgspec.structs.fields(kind)):
            text = texts.get(field.name, "")
            text = text[:1].upper() + text[1:] + _shown(field.default)
            command = _option(field.name, hints[field.name], text, metavars.get(field.name))(command)
        return click.option(
            "--config",
            "config_file",
            envvar="NODEDEVICE_CONFIG",
            type=click.Path(path_type=Path),
            help="YAML file with the same settings in camelCase; flags and environment win over it.",
        )(command)

    return decorated


def _texts(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The entries `name: text` of the docstrings of a structure and its bases."""
    docstrings = [inspect.cleandoc(base.__doc__ or "") for base in reversed(kind.__mro__)]
    entries = [entry.partition(": ") for text in docstrings for entry in re.split(r"\n(?=[a-z_]+: )", text)]
    return {name: " ".join(text.split()) for name, _, text in entries}


def _shown(default: object) -> str:
    if isinstance(default, bool):
        default = "on" if default else "off"
    if isinstance(default, tuple):
        default = ", ".join(default)
    return f"  [default: {default}]" if default and default is not msgspec.NODEFAULT else ""


def _option(name: str, hint: Any, text: str, metavar: str | None) -> Callable[[Command], Command]:
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    flag = f"--{name.replace('_', '-')}"
    if hint is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", default=None, help=text)
    if get_origin(hint) in _SEVERAL:
        text = f"{text}  May be given several times."
        return click.option(flag, multiple=True, callback=_SEVERAL[get_origin(hint)], metavar=metavar, help=text)
    values = click.Choice(get_args(hint)) if get_origin(hint) is Literal else hint if hint in (int, float) else None
    return click.option(flag, type=values, metavar=metavar, help=text)


def _list(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> list[str] | None:
    return list(given) or None


def _policies(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str] | None:
    """Raises click.BadParameter."""
    for pair in given:
        if "=" not in pair:
            raise click.BadParameter(f"{pair!r} is not RESOURCE=POLICY, such as vendor.com/gpu=evict")
    return dict(pair.split("=", 1) for pair in given) or None


_SEVERAL: Final[dict[Any, Callable[..., object]]] = {tuple: _list, dict: _policies}


@contextmanager
def exit_status() -> Iterator[None]:
    """Ends the program with one sentence and the status for what the block raises."""
    try:
        yield
    except (OperatorSettingsError, CredentialsError) as error:
        click.echo(f"nodedevice-operator: {error}", err=True)
        sys.exit(_USAGE_ERROR)
    except (StaleWatch, TaskEnded) as error:
        click.echo(f"nodedevice-operator: {error}", err=True)
        sys.exit(_RESTART)
