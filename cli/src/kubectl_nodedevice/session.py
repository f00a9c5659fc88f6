"""The state of one command line: kubectl's flags, the API server that they name, and the screen."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import click
from nodedevice_kube.credentials import Credentials
from nodedevice_kube.settings import Impersonation, Settings

from kubectl_nodedevice import kubeconfig
from kubectl_nodedevice.api import Api
from kubectl_nodedevice.errors import UsageProblem, as_login_problem
from kubectl_nodedevice.output import Screen
from kubectl_nodedevice.shell import typed

_KEY: Final = "kubectl_nodedevice.flags"
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
# of one request; kubectl has no limit, and waits for a server that is gone
_TIMEOUT: Final = 30.0
# the account of the operator's pod, and the commands that run there
_OPERATORS_ACCOUNT: Final = "nodedevice-operator"
_OF_OPERATORS_POD: Final = frozenset({"check", "devices", "holders"})


@dataclass
class Flags:
    context: str = ""
    kubeconfig: str = ""
    as_user: str = ""
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    request_timeout: str = ""
    namespace: str = ""
    is_all_namespaces: bool = False
    output: str = ""


@dataclass
class Session:
    """command: "" for the overview."""

    flags: Flags = field(default_factory=Flags)
    command: str = ""

    @cached_property
    def screen(self) -> Screen:
        return Screen(self.flags.output, flags=typed(*self._shared))

    @cached_property
    def login(self) -> Settings:
        """Raises LoginProblem, UsageProblem."""
        login = self.settings()
        if login.account == _OPERATORS_ACCOUNT and self.command not in _OF_OPERATORS_POD:
            problem = "this is the operator's account, which may do no more than check, devices and holders"
            raise UsageProblem(problem, "run it as yourself, where kubectl is", code="OperatorsPod")
        return login

    def settings(self) -> Settings:
        """Read them again, as files may have changed. Raises LoginProblem."""
        flags = self.flags
        settings = kubeconfig.load(flags.kubeconfig, flags.context)
        if not (flags.as_user or flags.as_groups or flags.as_uid):
            return settings
        return settings._replace(impersonation=Impersonation(flags.as_user, flags.as_uid, flags.as_groups))

    @cached_property
    def api(self) -> Api:
        """Raises LoginProblem and UsageProblem."""
        seconds = seconds_of(self.flags.request_timeout)
        with as_login_problem():
            credentials = Credentials(self.login, load=self.settings)
        return Api(credentials, seconds, self.screen.note)

    def close(self) -> None:
        if "api" in self.__dict__:
            self.api.close()

    @property
    def namespace(self) -> str:
        """The requested namespace, else the context's; "" for all."""
        return "" if self.flags.is_all_namespaces else self.flags.namespace or self.login.namespace or "default"

    def kubectl(self, *arguments: str) -> list[str]:
        """Return a kubectl command for the same cluster and person."""
        return ["kubectl", *self._shared, *arguments]

    @property
    def _shared(self) -> list[str]:
        """Flags that kubectl has as well."""
        flags = self.flags
        return [
            *(["--kubeconfig", flags.kubeconfig] if flags.kubeconfig else []),
            *(["--context", flags.context] if flags.context else []),
            *(["--as", flags.as_user] if flags.as_user else []),
            *(["--as-uid", flags.as_uid] if flags.as_uid else []),
            *(word for group in flags.as_groups for word in ("--as-group", group)),
        ]


def seconds_of(duration: str) -> float | None:
    """Parse kubectl's durations: 30s, 1m30s, 2. Return None for 0 (unlimited), the default for "". Raises UsageProblem."""
    if not duration:
        return _TIMEOUT
    try:
        seconds = float(duration)
    except ValueError:
        pieces = _DURATION.findall(duration)
        is_whole = "".join("".join(piece) for piece in pieces) == duration
        seconds = sum(float(number) * _UNITS[unit] for number, unit in pieces) if is_whole else -1
    if not 0 <= seconds < 1e6:
        raise UsageProblem(f"--request-timeout {duration} is not a duration", "such as 30s, 2m, or 0 for none")
    return seconds or None


def current(context: click.Context) -> Session:
    if _KEY not in context.meta:
        context.meta[_KEY] = made = Session()
        context.find_root().call_on_close(made.close)
    found = context.meta[_KEY]
    assert isinstance(found, Session)
    return found


def _keep(field_name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value:
            setattr(current(context).flags, field_name, value)

    return keep


def shared_options() -> list[click.Option]:

    def option(field_name: str, *names: str, **settings: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=_keep(field_name), **settings)

    return [
        option("namespace", "-n", "--namespace", metavar="NAME", help="Namespace of pods; default: the context's."),
        option("is_all_namespaces", "-A", "--all-namespaces", is_flag=True, help="Pods of all namespaces."),
        option("output", "-o", "--output", type=click.Choice(["wide", "json", "yaml"]), help="Form of the output."),
        option("context", "--context", metavar="NAME", help="Context of the kubeconfig; default: the current one."),
        option("kubeconfig", "--kubeconfig", metavar="FILE", help="Default: KUBECONFIG, else ~/.kube/config."),
        option("as_user", "--as", metavar="USER", help="Ask as this user."),
        option(
            "as_groups",
            "--as-group",
            multiple=True,
            metavar="GROUP",
            help="Ask as this group; several times for several.",
        ),
        option("as_uid", "--as-uid", metavar="UID", help="Ask as the user of this UID."),
        option(
            "request_timeout",
            "--request-timeout",
            metavar="DURATION",
            help="Limit of one request, such as 30s; 0 for none.",
        ),
    ]


class Command(click.Command):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.params += shared_options()

    def invoke(self, ctx: click.Context) -> Any:
        current(ctx).command = self.name or ""
        return super().invoke(ctx)
