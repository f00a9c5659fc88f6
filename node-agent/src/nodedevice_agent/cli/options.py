"""Flags of the commands: each sets one of the agent's settings, over its environment variable, the file and the default.

An agent's pod names its file in the environment, so a command that runs there uses the settings of that agent. --node-name is
needed by `run` alone.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource

from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.settings import AgentSettings, combined

_Command = Callable[..., None]

_DEFAULTS: Final = AgentSettings()
_HINTS: Final = get_type_hints(AgentSettings, include_extras=True)
# The setting's default is added to texts without brackets at the end.
_HELP: Final = {
    "node_name": "Name of the Node this agent runs on.  [required]",
    "kubeconfig": "Kubeconfig file.  [default: the pod's ServiceAccount, else $KUBECONFIG or ~/.kube/config]",
    "plugin_dir": "Directory where device plugins register.",
    "state_dir": "Directory for the checkpoint.",
    "pod_resources_socket": "Socket of the PodResources service; '' for none.  "
    "[default: pod-resources/kubelet.sock in --state-dir]",
    "plugins_registry_dir": "Directory watched for sockets of plugins.  [default: none]",
    "http_address": "HOST:PORT of /healthz, /readyz, /metrics; without HOST on all addresses, IPv4 and IPv6.",
    "metrics_authentication": "Who may read /metrics: everybody, or bearers of a token with permission to get that path.",
    "tls_certificate": "PEM file of a certificate chain: HTTPS with it instead of HTTP.  [default: none]",
    "tls_key": "PEM file of its key.  [default: none]",
    "leases_namespace": "Namespace of the agents' Leases.",
    "namespace": "Namespace of this installation, whose pods keep the GPUs that they name (plugins.nvml.exempt).",
    "delivery": "How devices reach containers.",
    "advertise_without_injection": "With --delivery none, advertise devices although containers get nothing.  [default: no]",
    "kubelet_dir": "The kubelet's root directory.",
    "observe": "Also publish resources of the kubelet's own device manager, read-only.  [default: observe]",
    "observe_dra": "Also publish devices of DRA drivers on this node, read-only.  [default: observe-dra]",
    "nri_socket": "The container runtime's NRI socket.",
    "nri_index": "Order among the runtime's NRI plugins, two digits.",
    "runtime_grace_seconds": "How long the runtime may be disconnected before no devices are advertised.",
    "device_ownership": "With nri, the owner of device files in containers: as on the host, or the container's user.",
    "runtime_config": "The container runtime's configuration file, read for --device-ownership auto.  "
    "[default: /etc/containerd/config.toml or /etc/crio/crio.conf]",
    "topology_policy": "NUMA alignment of devices.",
    "topology_scope": "Whether devices are aligned for each container or for the whole pod.",
    "numa_nodes": "The machine's NUMA nodes, such as 0-1,4.  [default: read from the kernel]",
    "flapping_changes": "Damp a device that changes, or comes and goes, this often within the window; 0: never.",
    "flapping_window_seconds": "Length of the window.",
    "flapping_quiet_seconds": "How long a damped device must stay unchanged before it counts again.",
    "allocate_retry": "RESOURCE=never: call Allocate once for a container; RESOURCE * is every other one. May be given several "
    "times.  [default: *=always]",
    "allowed_host_paths": "Directory below which NodeDeviceConfigs may name paths; may be given several times.  [default: /dev]",
    "log_level": "[default: info]",
    "log_format": "[default: text]",
}

_FORMER_NAMES: Final = {"delivery": "runtime"}


class OneLineCommand(click.Command):
    """Reports a mistake of the caller's as one line on standard error, exit status 1."""

    mistakes: tuple[type[Exception], ...] = (AgentSettingsError,)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except self.mistakes as exc:
            raise click.ClickException(str(exc)) from exc


class OneLineErrors(OneLineCommand, click.Group):
    """A group of commands."""


def takes_all_settings(command: _Command) -> _Command:
    """Add --config and a flag for every setting to `run`, except settings of built-in plugins. None: not set."""

    @wraps(command)
    def with_present_names(**given: Any) -> None:
        for field, former in _FORMER_NAMES.items():
            given[field] = _renamed(field, given[field], former, given.pop(former))
        command(**given)

    taking: _Command = with_present_names
    for field, text in reversed(_HELP.items()):
        if former := _FORMER_NAMES.get(field):
            about = f"The former name of {_name(field)}, for one release.  [default: {_name(field)}]"
            taking = _flag(field, about, former)(taking)
        taking = _flag(field, text)(taking)
    what = "YAML file of settings: the flags' names in camelCase, and the built-in plugins."
    return _config(f"{what} Flags and environment override it.")(taking)


def takes_settings(*fields: str) -> Callable[[_Command], _Command]:
    """Give a command --config and a flag for each of these settings; it is called with `settings`."""

    def decorated(command: _Command) -> _Command:
        @wraps(command)
        def with_settings(config: Path | None, **given: Any) -> None:
            flags = {field: given.pop(field) for field in fields}
            command(settings=combined(config, flags), **given)

        taking: _Command = with_settings
        for field in reversed(fields):
            taking = _flag(field, f"The agent's {_name(field)}.")(taking)
        return _config("The agent's --config. Flags and environment override it.")(taking)

    return decorated


def _config(text: str) -> Callable[[_Command], _Command]:
    return click.option(
        "--config", type=click.Path(path_type=Path), envvar="NODEDEVICE_CONFIG", show_envvar=True, help=text
    )


def _renamed(field: str, value: Any, former: str, former_value: Any) -> Any:
    """The value of a setting that has a former name; a flag counts more than an environment variable. Raises click.UsageError for
    two different values.
    """
    source = click.get_current_context().get_parameter_source
    if value is None or former_value is None or value == former_value:
        return former_value if value is None else value
    if source(field) is not source(former):
        return value if source(field) is ParameterSource.COMMANDLINE else former_value
    raise click.UsageError(
        f"{_name(former)} is the former name of {_name(field)}: the two must not differ, and are {former_value} and {value}; "
        f"omit {_name(former)} ({_variable(former)})"
    )


def _name(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _variable(field: str) -> str:
    return f"NODEDEVICE_{field.upper()}"


def _flag(field: str, text: str, name: str = "") -> Callable[[_Command], _Command]:
    """A flag that is not given leaves the value of the file or the default. name: other than the setting's."""
    default = getattr(_DEFAULTS, field)
    is_mapping, is_list = (get_origin(_HINTS[field]) is kind for kind in (dict, list))
    shown = f"{default:g}" if isinstance(default, float) else default
    flag = _name(name or field)
    return click.option(
        f"{flag}/--no-{flag[2:]}" if default is True else flag,
        name or field,
        envvar=_variable(name or field),
        show_envvar=True,
        default=None,
        is_flag=_HINTS[field] is bool,
        multiple=is_mapping or is_list,
        callback=_mapping if is_mapping else _list if is_list else None,
        type=_type(_HINTS[field]),
        help=text if text.endswith("]") else f"{text}  [default: {shown}]",
    )


def _mapping(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str] | None:
    """NAME=VALUE pairs, or None. Raises click.BadParameter."""
    for pair in given:
        if "=" not in pair:
            raise click.BadParameter(f"{pair!r} is not RESOURCE=VALUE, such as vendor.com/gpu=never")
    return dict(pair.split("=", 1) for pair in given) or None


def _list(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> list[str] | None:
    return list(given) or None


def _type(hint: Any) -> click.ParamType[Any] | None:
    """The type of the flag's value; None: any text."""
    if get_origin(hint) is Literal:
        return click.Choice(get_args(hint))
    if get_origin(hint) is not Annotated or get_args(hint)[0] is str:
        return None
    kind, bounds = get_args(hint)
    least = bounds.ge if bounds.gt is None else bounds.gt
    return (click.IntRange if kind is int else click.FloatRange)(least, bounds.le, min_open=bounds.gt is not None)
