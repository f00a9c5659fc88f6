"""The commands of nodedevice-agent: `run` reads the settings and runs the agent; the others inspect and simulate."""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click
from nodedevice_common import logs
from nodedevice_common.http_server import Protection, protection
from nodedevice_common.tasks import innermost, log_failed_callbacks, retried
from nodedevice_kube.api_errors import NotFound

from nodedevice_agent import __version__
from nodedevice_agent.agent import Agent
from nodedevice_agent.checkpoint.files import locked_state_dir, make_state_dir
from nodedevice_agent.cli.options import takes_all_settings
from nodedevice_agent.delivery.stored import with_selected_delivery
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.errors import AgentError, AgentSettingsError, DirectoryServed, StateDirectoryUsed
from nodedevice_agent.health import AgentHealth
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.retries import until_done
from nodedevice_agent.lib.vital import vital
from nodedevice_agent.metrics import serve
from nodedevice_agent.plugins.run import PluginRunner
from nodedevice_agent.plugins.settings import KINDS
from nodedevice_agent.settings import AgentSettings, load

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_WAITING: dict[type[AgentError], str] = {
    DirectoryServed: "waiting for the plugin directory",
    StateDirectoryUsed: "waiting for the state directory",
}

# grpc logs a traceback for every invalid message of a plugin; the caller logs one sentence
_LIBRARIES = {"grpc._common": logging.CRITICAL}
_DIRECTORY_RETRY_SECONDS = 2.0
_NODE_RETRY_SECONDS = 5.0

# the other commands, each of the module of that name; a running agent does not need them
_COMMANDS = ("checkpoint", "delivery", "discover", "plugin", "systemd")
_FORMER_NAMES = {"runtime": "delivery"}
# settings of built-in plugins
_PLUGINS = {settings.command: kind for kind, settings in KINDS.items() if settings.command}


class _Commands(click.Group):
    """Imports a command when it is called or listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_COMMANDS, *_PLUGINS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = _FORMER_NAMES.get(cmd_name, cmd_name)
        if cmd_name in _PLUGINS:
            from nodedevice_agent.cli.plugins import commands_of

            return commands_of(_PLUGINS[cmd_name])
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(f"nodedevice_agent.cli.{cmd_name}"), cmd_name)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nodedevice-agent")
def main() -> None:
    """Manages the devices of one node: serves device plugins, allocates devices to pods, publishes NodeDevices."""


@main.command()
@takes_all_settings
def run(config: Path | None, **flags: Any) -> None:
    """Run the agent until SIGTERM or SIGINT."""
    try:
        settings = load(config, flags)
        logs.set_up_logs(settings.log_level, settings.log_format, _LIBRARIES)
        asyncio.run(_until_stopped(settings))
    except AgentError as exc:
        click.echo(f"nodedevice-agent: {exc}", err=True)
        sys.exit(2 if isinstance(exc, AgentSettingsError) else 1)


async def _until_stopped(settings: AgentSettings) -> None:
    """Run until the first signal; a second one ends the process immediately, by its default action."""
    loop = asyncio.get_running_loop()
    log_failed_callbacks()
    running = asyncio.create_task(_run(settings))

    def stop(number: signal.Signals) -> None:
        log.info("stopping", extra={"signal": number.name})
        running.cancel()
        loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    with suppress(asyncio.CancelledError):
        try:
            await running
        except BaseExceptionGroup as group:
            raise innermost(group) from group
    log.info("stopped")


async def _run(settings: AgentSettings) -> None:
    state_dir, plugin_dir = Path(settings.state_dir), Path(settings.plugin_dir)
    make_state_dir(state_dir)
    cluster = KubeClient.connect(Path(settings.kubeconfig) if settings.kubeconfig else None)
    health = AgentHealth("plugin directory", "node", "api server", "pods")
    server = serve(settings.http_address, health, _protection(settings, cluster))
    try:
        with ExitStack() as stack:
            directory = await _wait_for(lambda: stack.enter_context(closing(PluginDirectory.take(plugin_dir))), health)
            await _wait_for(lambda: stack.enter_context(locked_state_dir(state_dir)), health)
            settings = with_selected_delivery(settings)
            extra = {"version": __version__, "node": settings.node_name, "delivery": settings.delivery}
            log.info("starting", extra=extra)
            plugins = PluginRunner(plugin_dir, state_dir)
            agent = Agent(settings, directory, cluster, health, plugins.apply, plugins.sockets)
            async with asyncio.TaskGroup() as group:
                group.create_task(vital("agent", agent.run))
                group.create_task(retried("plugins", partial(_built_in_plugins, agent, plugins)))
                group.create_task(retried("node", partial(_check_node, settings.node_name, cluster, health)))
    finally:
        server.shutdown()
        server.server_close()
        await cluster.close()


def _protection(settings: AgentSettings, cluster: KubeClient) -> Protection:
    try:
        return protection(settings.metrics_authentication, settings.tls_certificate, settings.tls_key, cluster.review)
    except ValueError as exc:
        raise AgentSettingsError(str(exc)) from exc


async def _built_in_plugins(agent: Agent, plugins: PluginRunner) -> None:
    # sockets that are in the directory before that are stale, and are removed
    await agent.is_serving.wait()
    await plugins.run()


async def _wait_for(take: Callable[[], _T], health: AgentHealth) -> _T:
    """Retry while another agent or device manager uses the directory: one that is being replaced still does for a moment."""
    is_logged = False
    while True:
        try:
            return take()
        except (DirectoryServed, StateDirectoryUsed) as exc:
            if not is_logged:
                log.error(_WAITING[type(exc)], extra={"error": str(exc)})
            is_logged = True
            health.report("plugin directory", str(exc))
            health.beat()
            await asyncio.sleep(_DIRECTORY_RETRY_SECONDS)


async def _check_node(node_name: str, cluster: KubeClient, health: AgentHealth) -> None:
    """Report a missing Node: nothing can be published for it."""
    is_logged = False
    while True:
        try:
            await until_done(lambda: cluster.node_uid(node_name), but=NotFound)
        except NotFound:
            why = f"there is no Node {node_name!r} in the cluster; check --node-name, or wait until it has joined"
            if not is_logged:
                log.error("node not found", extra={"node": node_name, "error": why})
            is_logged = True
            health.report("node", why)
            await asyncio.sleep(_NODE_RETRY_SECONDS)
        else:
            health.report("node")
            return
