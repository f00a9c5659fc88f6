"""Secrets in text: what has the form of one, and what was read as one, wherever it stands. All else stays."""

import itertools
import sys
import threading

import pytest
from nodedevice_common.safe_output import guard_output
from nodedevice_kube import masking
from nodedevice_kube.masking import masked, remember, remember_address, remember_login

_TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnLXNpZy1zaWc"


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_known", {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Illegal header value b'Bearer SECRET-TOKEN\\n'", "Illegal header value b'Bearer ***\\n'"),
        ("https://u:SECRET@h:6443/x refused", "https://***@h:6443/x refused"),
        ("http://u:SE/CRET@h:1 and https://SECRET@h/", "http://***@h:1 and https://***@h/"),
        ("http://u:SE@CRET@[::1]:3128", "http://***@[::1]:3128"),
        (
            'failed calling webhook "w": Post "https://u:SECRET@svc:443/?timeout=10s&token=SECRET": EOF',
            'failed calling webhook "w": Post "https://***@svc:443/?timeout=10s&token=***": EOF',
        ),
        ("Authorization: Basic U0VDUkVUOnB3", "Authorization: Basic ***"),
        ("{'Proxy-Authorization': 'Basic U0VDUkVUOnB3'}", "{'Proxy-Authorization': 'Basic ***'}"),
        ('{"token":"SECRET","a":1}', '{"token":"***","a":1}'),
        ('"{\\"client_secret\\": \\"SECRET\\"}"', '"{\\"client_secret\\": \\"***\\"}"'),
        ("env AWS_SECRET_ACCESS_KEY=SECRET x", "env AWS_SECRET_ACCESS_KEY=*** x"),
        ("login --token SECRET --password=SECRET x", "login --token *** --password=*** x"),
        ("secret: SECRETSECRETSECRET7", "secret: ***"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nSECRET\n-----END RSA PRIVATE KEY-----\nx",
            "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nx",
        ),
        ("-----BEGIN PRIVATE KEY----- SECRET", "-----BEGIN PRIVATE KEY-----***"),
        (f"{_TOKEN} is expired", "*** is expired"),
    ],
)
def test_what_has_the_form_of_a_secret(text: str, expected: str) -> None:
    assert masked(text) == expected
    assert masked(masked(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "docker-pullable://busybox@sha256:0123 of https://registry:5000/a@b",
        "https://host:6443/apis/x?labelSelector=a%3Db",
        "invalid bearer token, the token has expired; Basic authentication is off",
        "cannot read the token: permission denied",
        "the token file /var/run/secrets/kubernetes.io/serviceaccount/token cannot be used",
        'secrets "registry" not found, serviceaccount "default": no secret',
        "usb 0403:6001 example.com/gpu=2 gpu-0::3 key=value",
        "kubectl create secret generic a --from-literal=b=c",
    ],
)
def test_what_has_none(text: str) -> None:
    assert masked(text) == text


def test_what_was_read_is_masked_wherever_it_is() -> None:
    remember("SECRET-TOKEN\n", "short")
    remember_login("bob", "correct horse")
    remember_address("someone:PASS%2Fword@proxy:3128")
    remember_address("http://u:pw@proxy")
    text = (
        "SECRET-TOKEN short, correct horse correct%20horse Ym9iOmNvcnJlY3QgaG9yc2U=, PASS/word PASS%2Fword, u:pw@proxy"
    )
    assert masked(text) == "*** short, *** *** ***, *** ***, ***proxy"


def test_no_more_are_remembered_than_a_process_needs() -> None:
    for number in range(1000):
        remember(f"SECRET-{number:04}")
    assert masked("SECRET-0000 SECRET-0999") == "SECRET-0000 ***"


def test_standard_output_and_error_are_guarded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    guard_output()
    guard_output()
    print("a\tBearer SECRET-TOKEN \x1b[31m")
    sys.stderr.writelines(["--token SECRET\n", "x\r\n"])
    assert capsys.readouterr() == ("a\tBearer *** ?[31m\n", "--token ***\nx?\n")


def test_a_secret_that_another_thread_adds_meanwhile() -> None:
    """A log-in reads a token in a thread while the event loop writes a line of the log."""
    is_over = threading.Event()

    def log_in() -> None:
        for at in itertools.count():
            masking.remember(f"{at:016d}")
            if is_over.is_set():
                return

    thread = threading.Thread(target=log_in)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        assert {masking.masked("a line") for _ in range(2000)} == {"a line"}
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(interval)
