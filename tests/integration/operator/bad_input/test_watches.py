"""Watches that are cut, end with an error or bring nonsense: the operator opens them again, and misses nothing meanwhile."""

import pytest
from nodedevice_api import names

from hack.cluster.waiting import wait_until
from tests.fakes.fault_proxy import FaultProxy, refusal
from tests.integration.crds.custom_resources import pod_device
from tests.integration.operator_process import LogFromHere, PlayedNode

KINDS = ["nodes", names.NODE_DEVICES, names.POD_DEVICES]
EXPIRED = refusal(410, "Expired", "too old resource version: 1 (9)")


def error_line(status: bytes) -> bytes:
    return b'{"type":"ERROR","object":' + status + b"}\n"


class TestWatches:
    """What comes over a watch, or does not."""

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(
        "again",
        [
            pytest.param((410, EXPIRED, {}), id="410"),
            pytest.param((500, refusal(500, "InternalError", "boom"), {}), id="500"),
            pytest.param((429, b"Too many requests\n", {"Retry-After": "1"}), id="429"),
        ],
    )
    def test_that_is_cut_and_not_opened_again_at_once(
        self,
        node: PlayedNode,
        bystander: PlayedNode,
        proxy: FaultProxy,
        kind: str,
        again: tuple[int, bytes, dict[str, str]],
    ) -> None:
        rule = proxy.rule("WATCH", f"/{kind}", 2, *again)
        assert proxy.cut(kind) == 1
        node.verify_follows()
        wait_until(lambda: rule.is_over and proxy.open_watches(kind) == 1, "it is open again")
        node.verify_follows()

    @pytest.mark.parametrize("kind", KINDS)
    def test_that_is_cut_in_the_middle_of_a_line(
        self, node: PlayedNode, bystander: PlayedNode, proxy: FaultProxy, kind: str
    ) -> None:
        proxy.cut_in_the_next_line(kind)
        if kind == names.POD_DEVICES:
            somebody_makes_a_pod_device(node)
        node.verify_follows()
        wait_until(lambda: not proxy.is_to_be_cut(kind), "it was cut")
        node.verify_follows()

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(
        "line",
        [
            pytest.param(error_line(EXPIRED), id="410 Gone"),
            pytest.param(error_line(refusal(500, "InternalError", "etcd is away")), id="500"),
        ],
    )
    def test_that_ends_with_an_error(
        self, node: PlayedNode, bystander: PlayedNode, proxy: FaultProxy, kind: str, line: bytes
    ) -> None:
        assert proxy.send(kind, line) == 1
        node.verify_follows()

    def test_of_nodes_that_ends_with_an_error_again_and_again(
        self, node: PlayedNode, bystander: PlayedNode, proxy: FaultProxy, logged: LogFromHere
    ) -> None:
        """Each time it is open again within about a second, so that a Node is not left as somebody else made it."""
        for _ in range(7):
            wait_until(lambda: proxy.open_watches("nodes") == 1, "it is open again")
            proxy.send("nodes", error_line(refusal(500, "InternalError", "etcd is away")))
            wait_until(lambda: proxy.open_watches("nodes") == 0, "it was given up")
        node.verify_follows()
        begun = [line for line in logged.lines("watch expired; relisting") if line["kind"] == "nodes"]
        assert begun
        assert max(line["retry_in_seconds"] for line in begun) <= 1.2

    @pytest.mark.parametrize(
        "line",
        [
            pytest.param(b"<html>\n", id="no JSON"),
            pytest.param(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"x"}}}\n', id="no version"),
        ],
    )
    def test_that_brings_what_is_not_understood(
        self, node: PlayedNode, bystander: PlayedNode, proxy: FaultProxy, logged: LogFromHere, line: bytes
    ) -> None:
        assert proxy.send(names.NODE_DEVICES, line) == 1
        logged.wait("invalid watch event; relisting")
        node.verify_follows()
        assert len(logged.lines("invalid watch event; relisting")) == 1

    def test_and_the_list_after_it_fails(
        self, node: PlayedNode, bystander: PlayedNode, proxy: FaultProxy, logged: LogFromHere
    ) -> None:
        """A continue token that has expired, an error, and a page that somebody else made."""
        for status, body in ((410, EXPIRED), (500, b""), (200, b"<html>")):
            proxy.rule("GET", f"/{names.NODE_DEVICES}", 1, status, body)
        assert proxy.send(names.NODE_DEVICES, error_line(EXPIRED)) == 1
        node.verify_follows()
        assert len(logged.lines("list failed; retrying")) == 1


def somebody_makes_a_pod_device(node: PlayedNode) -> None:
    """One that nothing calls for: the operator takes it away."""
    body = pod_device("default", f"pod-{node.name}", nodeName=node.name)
    node.client.apply(body, field_manager="admin")
