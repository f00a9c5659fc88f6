"""What the relay of `make bench-node` finds in the bytes that it passed on."""

from nodedevice_agent.nri.mux import frames
from nodedevice_agent.nri.session import PLUGIN_STREAM, RUNTIME_STREAM
from nodedevice_agent.nri.ttrpc import encode
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2
from nodedevice_api.upstream.ttrpc import ttrpc_pb2

from hack.bench.node.nri_relay import Creation, Passed, creations

_REQUEST, _RESPONSE = 1, 2


def _call(number: int, method: str, pod: str) -> bytes:
    asked = api_pb2.CreateContainerRequest(
        pod=api_pb2.PodSandbox(name=pod), container=api_pb2.Container(name="main", env=["x" * 10_000])
    )
    request = ttrpc_pb2.Request(method=method, payload=asked.SerializeToString()).SerializeToString()
    return frames(PLUGIN_STREAM, encode(number, _REQUEST, request))


def _answer(number: int, stream_id: int = PLUGIN_STREAM) -> bytes:
    return frames(stream_id, encode(number, _RESPONSE, b""))


def test_each_answer_belongs_to_its_call() -> None:
    calls = [Passed(1.0, _call(1, "CreateContainer", "a")), Passed(2.0, _call(3, "CreateContainer", "b"))]
    answers = [Passed(2.25, _answer(3)), Passed(2.5, _answer(1))]
    assert list(creations(calls, answers)) == [Creation("a", "main", 1.5), Creation("b", "main", 0.25)]


def test_a_message_is_there_with_its_last_byte() -> None:
    call, answer = _call(1, "CreateContainer", "a"), _answer(1)
    calls = [Passed(1.0, call[:5]), Passed(1.5, call[5:6000]), Passed(2.0, call[6000:])]
    answers = [Passed(2.5, answer[:9]), Passed(3.0, answer[9:])]
    assert list(creations(calls, answers)) == [Creation("a", "main", 1.0)]


def test_only_creations_that_were_answered_on_the_plugins_stream() -> None:
    created = _call(3, "CreateContainer", "b") + _call(5, "CreateContainer", "c")
    calls = [Passed(1.0, _call(1, "StopContainer", "a") + created)]
    answers = [Passed(2.0, _answer(1) + _answer(3, RUNTIME_STREAM) + _answer(5))]
    assert list(creations(calls, answers)) == [Creation("c", "main", 1.0)]
