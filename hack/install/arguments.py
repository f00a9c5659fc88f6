"""Arguments of `make install` and `make uninstall`. Pure."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nodedevice_api.names import SYSTEM_NAMESPACE

from hack.install.owners import Owner
from hack.install.values import RELEASE


@dataclass(frozen=True)
class Arguments:
    """registry, containerd, builder: empty if not given. values: a file for the chart; None: no file.

    is_plan: print the actions only. is_all: remove what an uninstall keeps. is_sure: without a question.
    """

    registry: str = ""
    containerd: str = ""
    builder: str = ""
    values: Path | None = None
    namespace: str = SYSTEM_NAMESPACE
    release: str = RELEASE
    timeout_seconds: float = 180.0
    is_plan: bool = False
    is_all: bool = False
    is_sure: bool = False

    @property
    def owner(self) -> Owner:
        return Owner(self.namespace, self.release)

    @property
    def of_make(self) -> str:
        """The arguments of make that name this release; empty for the usual one."""
        usual = Arguments()
        named = {"NAMESPACE": (self.namespace, usual.namespace), "RELEASE": (self.release, usual.release)}
        return "".join(f" {name}={given}" for name, (given, default) in named.items() if given != default)


def parse(words: Sequence[str]) -> tuple[str, Arguments]:
    """The command, `install` or `uninstall`, and its arguments. Empty values are as if not given."""
    parser = argparse.ArgumentParser(prog="hack.install", description="See docs/install.md.")
    parser.add_argument("command", choices=("install", "uninstall"))
    for name in ("registry", "containerd", "builder", "values", "namespace", "release"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--timeout-seconds", default="")
    for name in ("plan", "all", "yes"):
        parser.add_argument(f"--{name}", action="store_true")
    given = parser.parse_args(words)
    usual = Arguments()
    try:
        seconds = float(given.timeout_seconds or usual.timeout_seconds)
    except ValueError:
        parser.error(f"TIMEOUT={given.timeout_seconds} is not a number of seconds, such as TIMEOUT=300")
    return given.command, Arguments(
        registry=given.registry.rstrip("/"),
        containerd=given.containerd,
        builder=given.builder,
        values=Path(given.values) if given.values else None,
        namespace=given.namespace or usual.namespace,
        release=given.release or usual.release,
        timeout_seconds=seconds,
        is_plan=given.plan,
        is_all=given.all,
        is_sure=given.yes,
    )
