"""What goes wrong beside the page: it says so in a sentence, and goes on when that is over."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Open
from tests.fakes.played_api.kinds import NODE_DEVICES, NODES
from tests.fakes.played_api.messages import Answer, Request, status
from tests.fakes.played_api.server import PlayedApi
from tests.fakes.played_api.serving import kubeconfig, serving
from tests.fakes.played_api.store import Made
from tests.unit.cli import objects
from tests.unit.cli.objects import allocation, device

HOSTILE = "<b>'\"$(id)\u202e" + "x" * 240
LATER_MS = 60_000


class FailingApi(PlayedApi):
    """statuses: of responses to requests for a kind; of all others: `anything`."""

    def __init__(self) -> None:
        super().__init__(fault=self._failure)
        self.statuses: dict[str, int] = {}

    def fail(self, **statuses: int) -> None:
        """From now on; open watches break."""
        self.statuses = statuses
        self.cut_watches()

    def _failure(self, request: Request) -> Answer | None:
        code = next((self.statuses[each] for each in self.statuses if each in request.path), 0)
        code = code or self.statuses.get("anything", 0)
        return status(code, "no luck", kind="nodedevices") if code else None


@pytest.fixture
def api(browser: Browser) -> Iterator[FailingApi]:
    with serving(FailingApi()) as made:
        made.put(NODE_DEVICES, objects.node_device("node-a"))
        yield made


@pytest.fixture
def process_and_page(
    api: FailingApi, opened: Open, browser: Browser, tmp_path: Path
) -> Iterator[tuple[psutil.Process, Page, str]]:
    with opened(kubeconfig(tmp_path, api.address)) as (address, command), browser.new_context() as context:
        yield command, context.new_page(), address


def test_a_tab_without_the_token_says_so_until_the_address_is_pasted(
    process_and_page: tuple[psutil.Process, Page, str],
) -> None:
    _, page, address = process_and_page
    page.goto(address.partition("#")[0])
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("You are not logged in")
    # longer than the time after which the page looks again
    page.wait_for_timeout(6_000)
    expect(alert).to_contain_text("You are not logged in")
    expect(page.locator("#current")).to_have_text("not read yet")
    page.evaluate(f"location.hash = {json.dumps('#' + address.partition('#')[2])}")
    expect(page.locator("a.sq")).to_have_count(2)
    expect(alert).to_be_hidden()
    assert "token" not in page.url


@pytest.mark.parametrize("status", [401, 403, 404, 503])
def test_what_the_api_server_refuses_is_said_until_it_is_over(
    api: FailingApi, process_and_page: tuple[psutil.Process, Page, str], status: int
) -> None:
    _, page, address = process_and_page
    page.goto(address)
    expect(page.locator("#current")).to_have_text("live")
    api.fail(anything=status)
    expect(page.get_by_role("alert")).to_contain_text("nodedevices: ", timeout=LATER_MS)
    expect(page.locator("#current")).to_contain_text("as of ")
    expect(page.locator("a.sq")).to_have_count(2)
    expect(page.locator("#needs")).to_contain_text("is not known")
    api.put(NODE_DEVICES, objects.node_device("node-b"))
    api.fail()
    expect(page.locator("a.sq")).to_have_count(4, timeout=LATER_MS)
    expect(page.locator("#current")).to_have_text("live")
    expect(page.get_by_role("alert")).to_be_hidden(timeout=LATER_MS)


@pytest.mark.parametrize(
    ("status", "words"),
    [(403, "Devices of your pods"), (404, "The devices cannot be read."), (401, "The devices cannot be read.")],
)
def test_what_is_refused_from_the_start(
    api: FailingApi, opened: Open, browser: Browser, tmp_path: Path, status: int, words: str
) -> None:
    api.fail(nodedevices=status)
    with opened(kubeconfig(tmp_path, api.address)) as (address, _), browser.new_context() as context:
        page = context.new_page()
        page.goto(address)
        expect(page.locator("main")).to_contain_text(words)
        expect(page.locator("main")).not_to_contain_text("no device plugin")
        expect(page.get_by_role("alert").first).to_contain_text("nodedevices: ")
        api.fail()
        expect(page.locator("a.sq")).to_have_count(2, timeout=LATER_MS)


def test_a_stopped_command_is_named(process_and_page: tuple[psutil.Process, Page, str]) -> None:
    command, page, address = process_and_page
    page.goto(address)
    expect(page.locator("#current")).to_have_text("live")
    command.send_signal(signal.SIGSTOP)
    try:
        expect(page.get_by_role("alert")).to_contain_text("Ctrl-Z", timeout=LATER_MS)
    finally:
        command.send_signal(signal.SIGCONT)
    expect(page.locator("#current")).to_have_text("live")


def test_hidden_tabs_do_not_stop_another_one(process_and_page: tuple[psutil.Process, Page, str]) -> None:
    _, page, address = process_and_page
    page.goto(address)
    expect(page.locator("a.sq")).to_have_count(2)
    for _ in range(8):
        hide = (
            "Object.defineProperty(document, 'hidden', {get: () => true}); dispatchEvent(new Event('visibilitychange'))"
        )
        page.evaluate(hide)
        page = page.context.new_page()
        page.goto(address.partition("#")[0], timeout=20_000)
        expect(page.locator("a.sq")).to_have_count(2)


def test_hostile_names_and_a_node_of_many_devices(
    api: FailingApi, opened: Open, page_of: Callable[..., Page], tmp_path: Path
) -> None:
    many = [device(f"{number:04}", parts={"total": 8, "available": 3}) for number in range(4095)]
    found = objects.node_device(
        "node-a", devices=[device(HOSTILE), *many], allocations=[allocation(HOSTILE, (HOSTILE,))]
    )
    api.put(NODE_DEVICES, found)
    with opened(kubeconfig(tmp_path, api.address)) as (address, _):
        page = page_of(address)
        square = page.locator("a.sq").first
        expect(square).to_have_attribute(
            "title", f"{HOSTILE.replace(chr(0x202E), '')}: in use, default/{HOSTILE.replace(chr(0x202E), '')}"
        )
        square.click()
        expect(page.get_by_role("region", name="Facts")).to_be_visible()
        command = page.locator(".command code").filter(has_text="nodedevice cordon").text_content() or ""
        assert "--device=" in command
        assert "--resource example.com/gpu" in command
        assert page.evaluate("document.querySelectorAll('*').length") <= 3_000
        page.goto(f"{address.partition('#')[0]}#/node/node-a")
        expect(page.get_by_text("… and 3,896 more")).to_be_visible()
        assert page.evaluate("document.querySelectorAll('*').length") <= 3_000
        assert "\u202e" not in page.evaluate("document.body.innerHTML")


def test_labels_that_cannot_be_read_show_no_other_nodes_until_they_can(
    api: FailingApi, process_and_page: tuple[psutil.Process, Page, str]
) -> None:
    _, page, address = process_and_page
    api.put(NODE_DEVICES, objects.node_device("node-b"))
    api.put(NODES, {"metadata": {"name": "node-a", "labels": {"zone": "a"}}})
    page.goto(address)
    expect(page.locator("a.sq")).to_have_count(4)
    api.fail(**{"/nodes": 403})
    page.get_by_label("Labels of nodes").fill("zone=a")
    expect(page.locator("#found")).to_contain_text("The labels cannot be used: nodes was refused")
    expect(page.locator("a.sq")).to_have_count(0)
    api.fail()
    expect(page.locator("#found")).to_have_text("1 node, 2 devices, 2 free", timeout=LATER_MS)
    page.get_by_label("Labels of nodes").fill("")
    expect(page.locator("a.sq")).to_have_count(4)


def test_an_object_that_cannot_be_read_is_named(
    api: FailingApi, opened: Open, page_of: Callable[..., Page], tmp_path: Path
) -> None:
    api.put(NODE_DEVICES, Made("", "odd", lambda: b'{"metadata": {"name": "odd"}, "spec": {"nodeName": "\xff"}}'))
    with opened(kubeconfig(tmp_path, api.address)) as (address, _):
        page = page_of(address)
        expect(page.get_by_role("alert")).to_contain_text("nodedevices: not read")
        expect(page.locator("a.sq")).to_have_count(2)
