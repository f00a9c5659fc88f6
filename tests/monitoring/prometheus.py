"""A real Prometheus for a test: Debian's program, on loopback, scraping what the test runs, asked over its HTTP API."""

import contextlib
import functools
import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.build.binaries import find
from tests.cluster.errors import BinaryError
from tests.cluster.processes.loopback import answers, fetch
from tests.cluster.processes.processes import Process, reserved_ports

_READY_SECONDS = 60.0
_ASK_EVERY_SECONDS = 0.25
Json = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """What to scrape: its job, its address, and the labels that the chart's monitors would add."""

    job: str
    address: str
    labels: Mapping[str, str] = field(default_factory=dict)


class Prometheus:
    """Use run()."""

    def __init__(self, process: Process, address: str) -> None:
        self._process = process
        self._address = address

    def is_ready(self) -> bool:
        return answers(f"http://{self._address}/-/ready", timeout_seconds=5)

    def query(self, expr: str) -> list[Json]:
        """The series of an instant query, each with `metric` and `value`. Raises AssertionError for what is no PromQL."""
        return list(self._ask("query", query=expr)["result"])

    def label_values(self, label: str, series: str) -> list[str]:
        return [str(value) for value in self._ask(f"label/{label}/values", **{"match[]": series})]

    def firing(self) -> frozenset[str]:
        """Names of the alerts that fire now."""
        return frozenset(alert["labels"]["alertname"] for alert in self.alerts() if alert["state"] == "firing")

    def alerts(self) -> list[Json]:
        return list(self._ask("alerts")["alerts"])

    def until(self, expr: str, what: str, timeout_seconds: float = 60.0) -> list[Json]:
        """The series, once there are any whose value is a number. Raises AssertionError."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            found = [series for series in self.query(expr) if series["value"][1] != "NaN"]
            if found:
                return found
            assert time.monotonic() < deadline, f"{what}: no data in {timeout_seconds:.0f} s: {expr}"
            time.sleep(_ASK_EVERY_SECONDS)

    def _ask(self, path: str, **query: str) -> Any:
        self._process.verify_alive()
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        status, body = fetch(url)
        content = json.loads(body)
        assert status == 200, f"{query or path}: {content['error']}"
        return content["data"]


@contextlib.contextmanager
def run(folder: Path, targets: Sequence[Target], rules: Json | None = None) -> Iterator[Prometheus]:
    """Prometheus in `folder`, asking every target once a second, with these rules. Ready when the block begins."""
    folder.mkdir()
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [_scrape(job, targets) for job in sorted({target.job for target in targets})],
    }
    if rules is not None:
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
        config["rule_files"] = [str(folder / "rules.yaml")]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    with reserved_ports(1) as (port,):
        address = f"127.0.0.1:{port}"
        process = Process("prometheus", _command(folder, address), folder / "log")
        prometheus = Prometheus(process, address)
        process.start()
        try:
            process.wait_ready(prometheus.is_ready, _READY_SECONDS)
            yield prometheus
        finally:
            process.kill()


def program(name: str) -> Path:
    """Path of prometheus or promtool. A machine that cannot have them skips what needs them, by name and with the reason."""
    found = _found(name)
    if isinstance(found, BinaryError):
        pytest.skip(str(found))
    return found


def promtool(*args: str | Path, folder: Path) -> str:
    """What Prometheus' checker printed. Raises AssertionError with it where it found fault."""
    command = [str(program("promtool")), *map(str, args)]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@functools.cache
def _found(name: str) -> Path | BinaryError:
    """Asked for once: a mirror that does not answer would keep each test waiting."""
    try:
        return find([name])[name]
    except BinaryError as exc:
        return exc


def _scrape(job: str, targets: Sequence[Target]) -> Json:
    groups = [{"targets": [each.address], "labels": dict(each.labels)} for each in targets if each.job == job]
    # as the chart's monitors: a pod that holds devices keeps its labels, and does not become the agent's own pod
    return {"job_name": job, "honor_labels": True, "static_configs": groups}


def _command(folder: Path, address: str) -> list[str]:
    return [
        str(program("prometheus")),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
