"""5,000 nodes with 80,000 devices: the page has few elements at a time, and the command little memory."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Open
from tests.fakes.played_api.kinds import NODE_DEVICES
from tests.fakes.played_api.server import PlayedApi
from tests.fakes.played_api.serving import kubeconfig, serving
from tests.unit.cli import objects
from tests.unit.cli.objects import GPU, Object, allocation, device

NODES = 5_000
MOST_ELEMENTS, MOST_MIB = 3_000, 250


def fleet_of(number: int, resource: str) -> Object:
    devices = [device(f"{number:05}-{each}-4fe0-9301-9867b12a3899") for each in range(8)]
    if number % 100 == 0:
        devices[7] |= {"health": "Unhealthy", "reason": "XidError", "message": "Xid 79: GPU has fallen off the bus"}
    held = [allocation(f"job-{number}-{each}", (devices[each]["id"],)) for each in range(number % 7)]
    healthy = sum(each["health"] == "Healthy" for each in devices)
    return objects.node_device(
        f"node-{number}", resource, devices, allocations=held, allocated=len(held), available=healthy - len(held)
    )


@pytest.fixture(scope="module")
def api(browser: Browser) -> Iterator[PlayedApi]:
    with serving(PlayedApi()) as made:
        made.objects[NODE_DEVICES] = [
            fleet_of(number, resource) for number in range(NODES) for resource in (GPU, "example.com/nic")
        ]
        yield made


def test_a_large_fleet(api: PlayedApi, opened: Open, page_of: Callable[..., Page], tmp_path: Path) -> None:
    with opened(kubeconfig(tmp_path, api.address)) as (address, command):
        page = page_of(address)
        expect(page.locator("#found")).to_contain_text(f"{NODES:,} nodes, {NODES * 16:,} devices", timeout=120_000)
        elements = "document.querySelectorAll('*').length"
        assert page.evaluate(elements) <= MOST_ELEMENTS
        expect(page.locator("#needs li")).to_have_count(2)
        for _ in range(5):
            page.mouse.wheel(0, 40_000)
            expect(page.locator(".row").first).to_be_visible()
            assert page.evaluate(elements) <= MOST_ELEMENTS
        page.get_by_label("Node", exact=True).fill("node-4999")
        expect(page.locator(".row")).to_have_count(2)
        changed = fleet_of(4999, GPU)
        changed["status"]["devices"][0]["health"] = "Unhealthy"
        api.put(NODE_DEVICES, changed)
        expect(page.locator(".row a.sq.b")).to_have_count(1, timeout=60_000)
        mib = command.memory_info().rss / 2**20
        print(f"{mib:.0f} MiB, {page.evaluate(elements)} elements")
        assert mib <= MOST_MIB


@pytest.mark.parametrize(("width", "height"), [(1200, 800), (3840, 2160)])
def test_dense_rows_have_few_elements(
    browser: Browser, opened: Open, page_of: Callable[..., Page], tmp_path: Path, width: int, height: int
) -> None:
    shares = {"total": 8, "available": 3}
    with serving(PlayedApi()) as api:
        for number in range(400):
            devices = [device(f"{each:04}", parts=shares) for each in range(300 if number % 2 else 4)]
            devices[-1] |= {"health": "Unhealthy"}
            found = objects.node_device(f"node-{number}", GPU, devices)
            api.put(NODE_DEVICES, found)
        with opened(kubeconfig(tmp_path, api.address)) as (address, _):
            page = page_of(address, viewport={"width": width, "height": height})
            expect(page.locator("#found")).to_contain_text("400 nodes", timeout=120_000)
            for _ in range(4):
                shown = page.evaluate("document.querySelectorAll('*').length")
                assert 1_000 <= shown <= MOST_ELEMENTS
                # the squares that need attention are not among those left out
                expect(page.locator(".row:not(:has(a.sq.b))")).to_have_count(0)
                page.mouse.wheel(0, 3_000)
            page.get_by_label("Node", exact=True).fill("node-399")
            expect(page.locator("a.sq")).to_have_count(256)
