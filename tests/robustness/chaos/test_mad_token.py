"""The token of one node's agent writes all that the API server takes, for as long as it likes; what that costs the others.

MAD_BIG, MAD_SMALL: how many NodeDevices of 1.2 MB and of 64 KiB (default 20 and 200; `make chaos` writes 400 and 5,000, which takes
some minutes).
"""

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nodedevice_api.names import Condition, node_device_name

from hack.bench.operator.counts import peak_rss_mib, rss_mib
from tests.cluster.accounts import client_of_pod
from tests.cluster.api import Client, Node
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import NODE_A, NODE_B, Stack
from tests.integration.crds.custom_resources import apply_status
from tests.integration.operator.test_memory import many_words
from tests.robustness.chaos import mad
from tests.robustness.chaos.siege import PLUGINS, PODS, RESOURCE, are_served, make_pods, status_of
from tests.robustness.chaos.witness import Witness

BIG, SMALL = int(os.environ.get("MAD_BIG", "20")), int(os.environ.get("MAD_SMALL", "200"))
MOST_MIB = 256
_SECONDS = 60.0
_WRITERS = 2


def write_all(client: Client, node: str, uid: str) -> None:
    """NodeDevices of a node as its agent may write them, side by side."""

    def write(number: int) -> None:
        mad.make(client, node, uid, number)
        status = mad.large(number) if number < BIG else many_words(number)
        apply_status(client, node_device_name(node, mad.invented(number)), status)

    with ThreadPoolExecutor(_WRITERS) as writers:
        # raises what a writer has raised
        list(writers.map(write, range(BIG + SMALL)))


@pytest.fixture
def stack() -> Iterator[Stack]:
    with tempfile.TemporaryDirectory(prefix="nd-mad-") as folder, Stack.start(Path(folder), plugins=PLUGINS) as found:
        yield found


def test_a_token_gone_mad_costs_the_others_nothing(stack: Stack) -> None:
    cluster = stack.control_plane
    assert isinstance(cluster, ControlPlane)
    is_served = partial(are_served, cluster, Condition.READY)
    make_pods(cluster, NODE_A)
    stack.wait_for("pods hold their devices", lambda: status_of(cluster, NODE_A)["allocated"] == PODS)
    node: Any = cluster.client.get(Node, NODE_B)
    with (
        Witness(cluster.admin_kubeconfig, RESOURCE, {NODE_A: PODS, NODE_B: 0}) as witness,
        client_of_pod(cluster, SYSTEM_NAMESPACE, "nodedevice-agent", NODE_B) as token,
    ):
        began = time.monotonic()
        write_all(token, NODE_B, str(node.metadata.uid))
        written = time.monotonic() - began
        stack.wait_for("both nodes are served", is_served, _SECONDS)
        while_running = _memory(stack)
        began = time.monotonic()
        stack.operator.process.kill()
        stack.operator.process.start()
        stack.operator.process.wait_ready(stack.operator.is_ready, _SECONDS)
        started = time.monotonic() - began
        stack.wait_for("both nodes are served again", is_served, _SECONDS)
        at_its_start = _memory(stack)
        print(f"\n{BIG} + {SMALL} NodeDevices in {written:.0f} s; the operator started in {started:.1f} s")
        print(f"operator's memory at most: {while_running:.0f} MiB by its watch, {at_its_start:.0f} MiB at its start")
        print(f"API server: {rss_mib(cluster.pids()['kube-apiserver']):.0f} MiB; {witness.seen} Nodes seen")
        assert not witness.violations
        assert max(while_running, at_its_start) < MOST_MIB


def _memory(stack: Stack) -> float:
    pid = stack.operator.process.pid
    assert pid is not None
    return peak_rss_mib(pid)
