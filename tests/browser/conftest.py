"""A browser, and `kubectl nodedevice open` as people run it. Skipped by name on machines without Chromium."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.cluster.processes.processes import running

Open = Callable[..., AbstractContextManager[tuple[str, psutil.Process]]]
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if found is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with sync_playwright() as playwright:
        # Chromium's sandbox does not work as root
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        made = playwright.chromium.launch(executable_path=found, args=sandbox)
        yield made
        made.close()


@pytest.fixture
def page_of(browser: Browser) -> Iterator[Callable[..., Page]]:
    """A new page; the test fails if the page reports an error. options: of a browser's context."""
    problems: list[str] = []
    with ExitStack() as opened:

        def make(address: str, **options: Any) -> Page:
            context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
            opened.callback(context.close)
            page = context.new_page()
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("console", lambda message: problems.append(message.text) if _is_problem(message) else None)
            page.goto(address)
            return page

        yield make
    assert not problems


def _is_problem(message: ConsoleMessage) -> bool:
    """A view of an object that is gone has an error as its response, which the page shows."""
    return message.type == "error" and "the server responded with a status of 409" not in message.text


@pytest.fixture(scope="session")
def opened() -> Open:
    """Run the command; yields the address that it printed, and its process, which a launcher may have started."""

    @contextmanager
    def run(kubeconfig: Path, *options: str) -> Iterator[tuple[str, psutil.Process]]:
        command = [sys.executable, "-m", "kubectl_nodedevice", "open", "--no-browser", *options]
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONUNBUFFERED": "1"}
        with running(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            printed = ""
            for line in process.stdout:
                printed += line
                if found := re.search(r"http://127\.0\.0\.1:\d+/#token=\S+", line):
                    started = psutil.Process(process.pid)
                    [served] = started.children() or [started]
                    yield found[0], served
                    return
            raise AssertionError(f"no address: {printed}")

    return run
