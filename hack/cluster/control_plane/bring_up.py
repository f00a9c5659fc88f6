"""In which order the processes start, and when each counts as ready.

Ready means that a test may begin: the API server is ready with its bootstrap roles, and a pod can be made in the
namespace `default`, which needs the ServiceAccount that the controller manager puts there.
"""

import time
from collections.abc import Callable
from functools import partial

from lightkube import Client
from lightkube.codecs import load_all_yaml

from hack.cluster.control_plane.health import answers
from hack.cluster.control_plane.layout import HERE, Layout
from hack.cluster.namespaces import has_default_service_account
from hack.cluster.processes.processes import Process

READY_SECONDS = 60.0


def bring_up(layout: Layout, client: Client, say: Callable[[str], None]) -> None:
    """Start every process and wait until all are ready. Raises ComponentError with the tail of a log."""
    began = time.monotonic()
    layout.etcd.start()
    layout.etcd.wait_ready(lambda: answers(layout.ports.etcd, "/health", layout.etcd_tls), READY_SECONDS)
    start_apiserver(layout)
    say(f"kube-apiserver ready at {layout.ports.url} after {time.monotonic() - began:.1f} s")
    for manifest in load_all_yaml((HERE / "kwok-role.yaml").read_text()):
        client.create(manifest)
    rest = (layout.scheduler, layout.controller_manager, layout.kwok)
    for process in rest:
        process.start()
    for process in rest:
        process.wait_ready(partial(_is_ready, layout, process), READY_SECONDS)
    layout.controller_manager.wait_ready(lambda: has_default_service_account(client, "default"), READY_SECONDS)
    say(f"control plane ready after {time.monotonic() - began:.1f} s")


def start_apiserver(layout: Layout) -> None:
    """Start the API server and wait until it is ready; the other processes find it again by themselves."""
    layout.apiserver.start()
    layout.apiserver.wait_ready(lambda: answers(layout.ports.apiserver, "/readyz", layout.tls), READY_SECONDS)


def _is_ready(layout: Layout, process: Process) -> bool:
    if process is layout.kwok:
        return answers(layout.ports.kwok, "/readyz", tls=None)
    port = layout.ports.scheduler if process is layout.scheduler else layout.ports.controller_manager
    return answers(port, "/healthz", layout.tls)
