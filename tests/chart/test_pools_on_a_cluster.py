"""Pools of nodes on a control plane of their own: each pool's agents come to its nodes, or are missing and say why."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from hack import yaml_text
from tests.chart.test_pools import pools
from tests.cluster.chart import CHART, SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until

pytestmark = pytest.mark.cluster


def test_a_cluster_gives_each_pool_its_nodes(
    tmp_path_factory: pytest.TempPathFactory, helm: Callable[..., Any]
) -> None:
    """By `helm install --wait`. A pool whose RuntimeClass does not exist has no agents, and says why; the others have theirs."""
    values = pools({"pool": "a"}, {"pool": "b"})
    values["agents"]["pools"][1]["runtimeClassName"] = "is-not-there"
    folder = tmp_path_factory.mktemp("pools")
    file = folder / "values.yaml"
    file.write_text(yaml_text.dump(values))
    with ControlPlane.start(folder / "c", print) as running:
        nodes = {"node-a": "pool=a", "node-b": "pool=b", "node-c": "pool=c", "node-d": ""}
        running.add_nodes(list(nodes))
        for node, label in nodes.items():
            running.kubectl("label", "node", node, "kubernetes.io/os=linux", *filter(None, [label]))

        def numbers(field: str) -> dict[str, int]:
            found = json.loads(running.kubectl("get", "daemonsets", "-A", "-o", "json"))["items"]
            return {each["metadata"]["name"]: each["status"].get(field, 0) for each in found}

        def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
            cluster = ["--kubeconfig", str(running.admin_kubeconfig), "--namespace", SYSTEM_NAMESPACE]
            done = helm(*arguments, *cluster, env={"HOME": str(folder), "PATH": ""})
            assert isinstance(done, subprocess.CompletedProcess)
            return done

        chart = ["nodedevice", str(CHART), "--values", str(file), "--wait"]
        done = run("install", *chart, "--create-namespace", "--timeout", "30s")
        assert done.returncode != 0, done.stdout
        assert "nodedevice-agent-p1" in done.stderr
        assert not {name for name in ("nodedevice-agent-p0", "nodedevice-operator") if name in done.stderr}
        wanted = {"nodedevice-agent-p0": 1, "nodedevice-agent-p1": 1, "nodedevice-agent": 2}
        assert numbers("desiredNumberScheduled") == wanted
        assert numbers("numberReady") == wanted | {"nodedevice-agent-p1": 0}
        described = running.kubectl("describe", "--namespace", SYSTEM_NAMESPACE, "daemonset/nodedevice-agent-p1")
        assert "FailedCreate" in described
        assert 'RuntimeClass "is-not-there" not found' in described

        # as its page advises
        handler = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "any"}
        running.apply(yaml_text.dump({**handler, "metadata": {"name": "is-not-there"}}))
        running.kubectl("rollout", "restart", "--namespace", SYSTEM_NAMESPACE, "daemonset/nodedevice-agent-p1")
        wait_until(lambda: numbers("numberReady") == wanted, "its agents have come", 60)
