"""What the programs that run until a signal share: an option for each of their settings, and their exit status."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import click
import msgspec

from nodedevice_operator.errors import CredentialsError, OperatorSettingsError, StaleWatch, TaskEnded

_USAGE_ERROR: Final = 2
_RESTART: Final = 1

SETTINGS: Final = {"auto_envvar_prefix": "NODEDEVICE", "show_default": True}
# The help of settings that both programs have.
SHARED: Final = {
    "kubeconfig": "Kubeconfig to use; without it the pod's service account, or ~/.kube/config.",
    "metrics_authentication": "Who may read /metrics: everybody, or bearers of a token with permission to get that path.",
    "tls_key": "PEM file of its key.",
    "namespace": "Namespace of that Lease; without it the pod's own, or the kubeconfig's.",
    "instance": "Helm release whose label created objects get; default: none.",
    "leader_lease_seconds": "How long that Lease lasts, and so about the take-over after a crash.",
    "watchdog_seconds": "How often the watch is checked against a list; 0: never.",
    "log_level": "Least level that is logged.",
    "log_format": "For people or for machines.",
}

Command = Callable[..., None]


def takes_settings(
    kind: type[msgspec.Struct], texts: Mapping[str, str], metavars: Mapping[str, str]
) -> Callable[[Command], Command]:
    """Adds --config, and an option for each setting. texts: help besides SHARED. One that is not given is None."""

    def decorated(command: Command) -> Command:
        hints = get_type_hints(kind, include_extras=True)
        for name in reversed(kind.__struct_fields__):
            command = _option(name, hints[name], {**SHARED, **texts}[name], metavars.get(name))(command)
        return click.option(
            "--config",
            "config_file",
            envvar="NODEDEVICE_CONFIG",
            type=click.Path(path_type=Path),
            help="YAML file with the same settings in camelCase; flags and environment win over it.",
        )(command)

    return decorated


def _option(name: str, hint: Any, text: str, metavar: str | None) -> Callable[[Command], Command]:
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    flag = f"--{name.replace('_', '-')}"
    if hint is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", default=None, help=text)
    if get_origin(hint) in _SEVERAL:
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
