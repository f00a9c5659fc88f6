"""`kubectl nodedevice open`: serves the page, and opens it in a browser."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from nodedevice_kube.api_errors import ApiError, Forbidden
from nodedevice_kube.fields import Json, text_of
from nodedevice_kube.masking import masked
from nodedevice_kube.paths import PODS

from kubectl_nodedevice.api import GROUP, NODE_DEVICES, Api, path_of
from kubectl_nodedevice.cluster import NodeDevice, Pod
from kubectl_nodedevice.errors import FINE, CliError
from kubectl_nodedevice.page.fleet import Fleet
from kubectl_nodedevice.page.follow import API_SECONDS, Follower, Kind
from kubectl_nodedevice.page.server import PageServer, asset, embedded, opened_in_browser
from kubectl_nodedevice.page.views import VIEWS
from kubectl_nodedevice.reading import Reader
from kubectl_nodedevice.records import record_of
from kubectl_nodedevice.session import Command, Session, current
from kubectl_nodedevice.survey import of_others

# the operator's Lease and NodeDeviceConfigs are read again
_OTHERS_SECONDS: Final = 30.0
_NODE_DEVICES: Final = "nodedevices"
_PENDING: Final = "pending pods"


@click.command("open", cls=Command)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1; default: any free one.")
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@click.option(
    "--snapshot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the current page into one HTML file, and end.",
)
@click.pass_context
def open_page(context: click.Context, port: int, no_browser: bool, snapshot: Path | None) -> int:
    """Open a page with every device of the cluster: free, in use or unhealthy, with the pod that uses it.

    The page is served on this machine alone, shows what your kubeconfig may see, and changes nothing.
    """
    session = current(context)
    fleet = Fleet()
    if snapshot is not None:
        return _write_snapshot(session, fleet, snapshot)
    # a wrong kubeconfig is an error here, and not a page without data
    about = _about(session)
    _follow(session, fleet)
    server = _listening(port, fleet, about, _view_of(session))
    _end_by_signals(server)
    screen = session.screen
    screen.line(f"The page of {about['cluster']} is at")
    screen.block(f"  {server.address}")
    screen.line("Ctrl-C ends it.")
    if not no_browser:
        # some browsers run until they are closed
        threading.Thread(target=_open_browser, args=(session, server), name="starts a browser", daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever(poll_interval=0.2)
    server.ended.set()
    return FINE


def _about(session: Session) -> dict[str, str]:
    settings = session.login
    return {
        "cluster": settings.context or masked(settings.server),
        "user": session.flags.as_user or settings.user or settings.account,
    }


def _listening(
    port: int, fleet: Fleet, about: Mapping[str, str], view: Callable[[str, Mapping[str, str]], Any]
) -> PageServer:
    try:
        return PageServer(port, fleet, about, view)
    except OSError as exc:
        problem = f"port {port} of 127.0.0.1 cannot be used: {exc.strerror or exc}"
        raise CliError(problem, "leave --port out for a free port, or end what uses it", code="Port") from exc


def _open_browser(session: Session, server: PageServer) -> None:
    if not opened_in_browser(server.address_once):
        remedy = f"from another machine: ssh -L {server.server_port}:127.0.0.1:{server.server_port} and this host"
        session.screen.note(f"No browser was found here: open the address in one of this machine, or, {remedy}.")


def _end_by_signals(server: PageServer) -> None:
    def end(*_: object) -> None:
        server.ended.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)


# -- what the page follows -------------------------------------------------------------------------------------------------


def _follow(session: Session, fleet: Fleet) -> None:
    for kind in kinds(fleet):
        Follower(_api(session, API_SECONDS), kind, fleet).start()
    threading.Thread(target=_read_others, args=(session, fleet), name="reads configs", daemon=True).start()


def _api(session: Session, seconds: float | None) -> Api:
    """Return a connection for one thread. All of them share one login, as a log-in program may open a browser."""
    return Api(session.api.credentials, seconds)


def kinds(fleet: Fleet) -> Iterator[Kind]:
    yield Kind(
        _NODE_DEVICES,
        path_of(GROUP, NODE_DEVICES),
        lambda obj: fleet.put(record_of(NodeDevice, obj)),
        fleet.remove,
        fleet.names,
        lambda obj: text_of(obj, "metadata", "name"),
        {},
    )
    yield Kind(
        _PENDING,
        PODS.path(),
        lambda obj: fleet.put_pod(record_of(Pod, obj)),
        fleet.remove_pod,
        fleet.pods,
        _key,
        {"fieldSelector": "status.phase=Pending"},
    )


def _key(obj: Json) -> str:
    return f"{text_of(obj, 'metadata', 'namespace')}/{text_of(obj, 'metadata', 'name')}"


def _read_others(session: Session, fleet: Fleet) -> None:
    api = _api(session, 30.0)
    while True:
        with contextlib.suppress(ApiError, CliError):
            fleet.set_others(of_others(Reader(api, session.screen)))
        time.sleep(_OTHERS_SECONDS)


def _view_of(session: Session) -> Callable[[str, Mapping[str, str]], Any]:
    """Reads one view at a time, over one connection."""
    own = replace(session)
    # It warns of no unread object: the followers do.
    own.api = _api(session, session.api.timeout_seconds)
    lock = threading.Lock()

    def view(name: str, query: Mapping[str, str]) -> Any:
        with lock:
            return VIEWS[name](own, query)

    return view


# -- a page in one file ----------------------------------------------------------------------------------------------------


def _write_snapshot(session: Session, fleet: Fleet, file: Path) -> int:
    """Raises ApiError and CliError."""
    reader = Reader(session.api, session.screen)
    for found in reader.each_node_device():
        fleet.put(found)
    try:
        for pod in reader.pending_pods():
            fleet.put_pod(pod)
    except Forbidden as exc:
        fleet.source(_PENDING, problem=exc.problem)
    fleet.set_others(of_others(reader))
    fleet.source(_NODE_DEVICES, as_of=time.time())
    try:
        file.write_text(snapshot_of(fleet, _about(session)), encoding="utf-8")
    except OSError as exc:
        raise CliError(f"{file} cannot be written: {exc.strerror or exc}", "choose another file") from exc
    session.screen.line(f"{file}: open it in a browser; it needs neither this program nor the cluster.")
    return FINE


def snapshot_of(fleet: Fleet, about: Mapping[str, str]) -> str:
    """The page with its style, its program and its data inside."""
    data = fleet.everything(about, fleet.groups(datetime.now(UTC)))
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    page = asset("index.html").decode()
    style = f"<style>\n{asset('page.css').decode()}</style>"
    program = f'<script type="application/json" id="data">{embedded(data)}</script>\n<script>\n{asset("page.js").decode()}</script>'
    page = page.replace("<!-- policy -->", f'<meta http-equiv="Content-Security-Policy" content="{policy}">')
    page = page.replace('<link rel="icon" href="/icon.svg">\n', "").replace(
        '<link rel="stylesheet" href="/page.css">', style
    )
    return page.replace('<script src="/page.js" defer></script>', "").replace("</body>", f"{program}\n</body>")
