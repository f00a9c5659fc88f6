"""`nodedevice-agent plugin check`: tests a running device plugin against the device plugin API v1beta1.

It needs neither an agent nor a kubelet that runs. Exit status: 0 without problems, 1 with warnings, 2 with errors.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import click
from msgspec.structs import replace
from nodedevice_common.text import shown

from nodedevice_agent.cli.options import OneLineErrors
from nodedevice_agent.cli.plugin_findings import Finding, Severity, error, exit_status, skipped
from nodedevice_agent.cli.plugin_probe import Probe, Registration, check_plugin, other_sockets

_CHECK_WIDTH: Final = 23
_MOST_CHARACTERS: Final = 400
# Every step has a deadline of its own. All together, with the longest --watch, end before.
_MOST_SECONDS: Final = 600.0
_MAX_WATCH_SECONDS: Final = 300.0


@click.group(cls=OneLineErrors)
def plugin() -> None:
    """Test device plugins."""


@plugin.command()
@click.argument("socket", type=click.Path(path_type=Path))
@click.option(
    "--allocate",
    "may_allocate",
    is_flag=True,
    help="Call Allocate for one device, and PreStartContainer where the plugin requires it. A plugin may change the device there; "
    "do not use it while a pod holds the device.",
)
@click.option(
    "--register",
    "registers",
    is_flag=True,
    help="Act as a kubelet in the directory of SOCKET: wait for the plugin to register, and again after a restart of the kubelet. "
    "The directory must have no other sockets. SOCKET may be the directory.",
)
@click.option(
    "--watch",
    "watch_seconds",
    type=click.FloatRange(0, _MAX_WATCH_SECONDS),
    default=5.0,
    show_default=True,
    help="Seconds for which the stream must stay open.",
)
@click.option("--host-root", default="", help="Where the host's files are seen.  [default: /]")
@click.pass_context
def check(
    ctx: click.Context, socket: Path, may_allocate: bool, registers: bool, watch_seconds: float, host_root: str
) -> None:
    """Check the device plugin that serves on SOCKET against the device plugin API v1beta1.

    Prints one line for each check: ok, warning, error or skipped, with a remedy. Exit status: 0 without problems, 1 with
    warnings, 2 with errors.
    """
    # the agent's own log lines repeat the report; without a handler Python would print them
    logging.getLogger("nodedevice_agent").addHandler(logging.NullHandler())
    for library in ("grpc._common", "asyncio"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    probe = Probe(socket.absolute(), may_allocate, watch_seconds, host_root)
    findings = asyncio.run(_report(_checks(probe, registers=registers)))
    counts = Counter(finding.severity for finding in findings)
    click.echo(
        f"errors: {counts[Severity.ERROR]}, warnings: {counts[Severity.WARNING]}, skipped: {counts[Severity.SKIPPED]}"
    )
    ctx.exit(exit_status(findings))


def _checks(probe: Probe, *, registers: bool) -> AsyncIterator[Finding]:
    """Raises click.UsageError for a SOCKET that cannot be checked at all."""
    is_directory = os.path.isdir(probe.socket)
    if not registers and not is_directory:
        return _without_registration(probe)
    if not registers:
        raise click.UsageError(f"{probe.socket} is a directory: name the plugin's socket, or pass --register")
    directory = probe.socket if is_directory else probe.socket.parent
    try:
        others = other_sockets(directory, "" if is_directory else probe.socket.name)
    except OSError as exc:
        raise click.UsageError(f"{directory}: {exc.strerror}") from exc
    if len(others) > is_directory:
        named = shown(", ".join(others), 200)
        raise click.UsageError(
            f"{directory} has other sockets ({named}), which --register would remove: give the plugin an empty directory"
        )
    return Registration(directory).check(lambda socket: check_plugin(replace(probe, socket=socket)))


async def _without_registration(probe: Probe) -> AsyncIterator[Finding]:
    async for finding in check_plugin(probe):
        yield finding
    yield skipped("registration", "not tested; --register acts as a kubelet in a directory that no kubelet serves")


async def _report(checks: AsyncIterator[Finding]) -> list[Finding]:
    findings: list[Finding] = []
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            async for finding in checks:
                findings.append(finding)
                click.echo(_line(finding))
    except TimeoutError:
        findings.append(error("all", f"not finished within {_MOST_SECONDS:g} s", "Check what the plugin waits for."))
        click.echo(_line(findings[-1]))
    return findings


def _line(finding: Finding) -> str:
    text = f"{finding.text}. {finding.remedy}" if finding.remedy else finding.text
    return f"{finding.severity.value:<8} {finding.check:<{_CHECK_WIDTH}} {shown(text, _MOST_CHARACTERS)}"
