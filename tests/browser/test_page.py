"""The page on a real control plane with two nodes: each view, a live change, the keyboard, narrow and dark screens."""

import json
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from kubectl_nodedevice import program
from playwright.sync_api import Browser, Page, expect

from hack import yaml_text
from tests.browser.conftest import Open
from tests.cluster.cluster import a_pod
from tests.cluster.local.stack import GPU, NODE_A, NODE_B, Stack
from tests.cluster.waiting import wait_until

pytestmark = pytest.mark.cluster
Make = Callable[..., Page]


@pytest.fixture(scope="module")
def stack(browser: Browser) -> Iterator[Stack]:
    """A pod holds a device, and another one waits for more than there is."""
    with (
        tempfile.TemporaryDirectory(prefix="nd-page-", ignore_cleanup_errors=True) as folder,
        Stack.start(Path(folder)) as made,
    ):
        pods = [a_pod("held", "default", {GPU: 1}), a_pod("waits", "default", {GPU: 99})]
        made.control_plane.apply(yaml_text.dump_all(pods))
        find_it = ("get", "poddevice", "held", "--ignore-not-found", "-o", "name")
        wait_until(lambda: made.control_plane.kubectl(*find_it) != "", "the pod holds a device")
        yield made


@pytest.fixture(scope="module")
def address(stack: Stack, opened: Open) -> Iterator[str]:
    with opened(stack.control_plane.admin_kubeconfig) as (found, _):
        yield found


def at(address: str, *parts: str) -> str:
    return f"{address.partition('#')[0]}#/{'/'.join(quote(each, safe='') for each in parts)}"


def device_ids(stack: Stack, node: str) -> list[str]:
    found = json.loads(stack.control_plane.kubectl("get", "nodedevice", f"{node}.example.com.gpu", "-o", "json"))
    return [each["id"] for each in found["status"]["devices"]]


def square(page: Page, device_id: str, node: str = NODE_A) -> str:
    return f"a.sq[href='#/device/{node}/{quote(GPU, safe='')}/{quote(device_id, safe='')}']"


def test_every_device_is_a_square_and_a_change_is_seen(stack: Stack, address: str, page_of: Make) -> None:
    page = page_of(address)
    expect(page.locator("#found")).to_have_text("2 nodes, 10 devices, 9 free")
    expect(page.locator("#current")).to_have_text("live")
    assert "token" not in page.url
    expect(page.locator("a.sq")).to_have_count(10)
    expect(page.locator("a.sq.h")).to_have_count(1)
    assert "default/held" in (page.locator("a.sq.h").get_attribute("aria-label") or "")
    [device_id] = set(device_ids(stack, NODE_A)[-1:])
    body = json.dumps({"spec": {"cordonedDevices": [{"id": device_id, "reason": "<b>fan</b>"}]}})
    stack.control_plane.kubectl("patch", "nodedevice", f"{NODE_A}.example.com.gpu", "--type=merge", "-p", body)
    expect(page.locator(f"{square(page, device_id)}.c")).to_be_visible(timeout=60_000)
    page.locator(square(page, device_id)).click()
    changes = page.get_by_role("region", name="Changes")
    expect(changes).to_contain_text("cordoned")
    expect(page.get_by_role("region", name="Cordons")).to_contain_text("<b>fan</b>")
    stack.control_plane.kubectl(
        "patch", "nodedevice", f"{NODE_A}.example.com.gpu", "--type=merge", "-p", '{"spec": {"cordonedDevices": null}}'
    )
    page.goto(at(address))
    expect(page.locator(f"{square(page, device_id)}.f")).to_be_visible(timeout=60_000)


def test_filters_have_links(address: str, page_of: Make) -> None:
    page = page_of(address)
    page.get_by_role("button", name="in use").click()
    expect(page.locator(".row")).to_have_count(1)
    page.get_by_label("Namespace of pods").fill("default")
    expect(page.locator("#found")).to_contain_text("1 node")
    page.wait_for_url("**namespace=default**")
    again = page_of(page.url, storage_state=page.context.storage_state())
    expect(again.locator(".row")).to_have_count(1)
    expect(again.get_by_role("button", name="in use")).to_have_attribute("aria-pressed", "true")
    again.get_by_label("Labels of nodes").fill("no-node-has=this")
    expect(again.locator("#found")).to_have_text("No device matches these filters.")


def test_a_pod_is_a_chain_to_the_broken_link(address: str, page_of: Make) -> None:
    page = page_of(address)
    expect(page.locator("#needs")).to_contain_text("default/waits is pending")
    page.goto(at(address, "pod", "default", "waits"))
    expect(page.locator(".chain li.broken b")).to_have_text("Node")
    expect(page.locator(".chain li.open")).to_have_count(2)
    expect(page.get_by_text("kubectl nodedevice why pod waits")).to_be_visible()
    page.goto(at(address, "pod", "default", "held"))
    expect(page.locator(".chain li").nth(2)).to_contain_text("1 allocated")
    page.goto(at(address, "pod", "default", "<script>"))
    expect(page.get_by_role("alert").filter(has_text="does not exist")).to_be_visible()


def test_by_the_keyboard_alone(address: str, page_of: Make) -> None:
    page = page_of(address)
    first = page.locator(".row a.sq").first
    expect(first).to_be_visible()
    for _ in range(60):
        page.keyboard.press("Tab")
        if first.evaluate("each => each === document.activeElement"):
            break
    expect(first).to_be_focused()
    page.keyboard.press("ArrowRight")
    second = page.evaluate("document.activeElement.getAttribute('href')")
    assert second != first.get_attribute("href")
    page.keyboard.press("ArrowDown")
    assert f"/{NODE_B}/" in page.evaluate("document.activeElement.getAttribute('href')") or page.evaluate(
        "document.activeElement.matches('a.sq')"
    )
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=2)).to_contain_text("Device ")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen_in_both_colours_is_accessible(stack: Stack, address: str, page_of: Make, scheme: str) -> None:
    size = {"width": 360, "height": 700}
    # axe is a script of the test, which the page's policy would refuse
    page = page_of(address, viewport=size, color_scheme=scheme, bypass_csp=True)
    views = {
        ".row": at(address),
        "text=Changes seen": at(address, "device", NODE_A, GPU, device_ids(stack, NODE_A)[0]),
        "text=Conditions": at(address, "node", NODE_A),
        ".chain": at(address, "pod", "default", "waits"),
    }
    for shown, where in views.items():
        page.goto(where)
        expect(page.locator(shown).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, where
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


def test_a_snapshot_shows_the_fleet_without_the_program(stack: Stack, page_of: Make, tmp_path: Path) -> None:
    file = tmp_path / "devices.html"
    arguments = ["--kubeconfig", str(stack.control_plane.admin_kubeconfig), "--snapshot", str(file)]
    assert program.run(["open", *arguments]) == 0
    page = page_of(file.as_uri())
    expect(page.locator("a.sq")).to_have_count(10)
    expect(page.locator("#current")).to_contain_text("A snapshot as of")
    page.locator("a.sq").first.click()
    expect(page.get_by_text("a snapshot has no more than the fleet")).to_be_visible()


def test_the_end_of_the_command_and_of_the_cluster_are_said(stack: Stack, opened: Open, browser: Browser) -> None:
    with opened(stack.control_plane.admin_kubeconfig) as (address, command):
        page = browser.new_context().new_page()
        page.goto(address)
        expect(page.locator("a.sq")).to_have_count(10)
        command.send_signal(signal.SIGTERM)
        expect(page.get_by_role("alert")).to_contain_text("kubectl nodedevice open has ended", timeout=60_000)
        expect(page.locator("#current")).to_contain_text("as of ")
        expect(page.locator("a.sq")).to_have_count(10)


def test_without_the_token_there_is_a_sentence(address: str, browser: Browser) -> None:
    page = browser.new_context().new_page()
    page.goto(address.partition("#")[0])
    expect(page.get_by_role("alert")).to_contain_text("You are not logged in")
    page.goto("about:blank")
    page.goto(f"{address.partition('#')[0]}#token=wrong")
    expect(page.get_by_role("alert")).to_contain_text("the token is of another start")
