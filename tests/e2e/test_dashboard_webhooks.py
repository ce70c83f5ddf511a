"""Webhooks on the page, to a receiver that is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import BROWSER, Browser, Page, confirm, expect, gone, shoot, visiting
from receivers import Receiver, reply

from trimtab.api.notify.settings import alert_settings
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.api.settings import Settings

pytestmark = BROWSER


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """The settings of a service that may reach this machine."""
    service = Service.open(tmp_path / "agent.db")
    settings = Settings(alerts=alert_settings(http=True, private=["127.0.0.0/8"]))
    with running(service, settings=settings) as url, visiting(browser, url, "/#/settings") as page:
        yield page
    service.close()


def add(page: Page, name: str, url: str) -> None:
    page.get_by_role("button", name="New webhook").click()
    page.get_by_label("What it is called").fill(name)
    page.get_by_label("What it goes to").select_option("trimtab")
    page.get_by_label("Where it is reached").fill(url)
    confirm(page, "Add it", "so that somebody knows")


def test_a_webhook_is_added_tried_disabled_and_removed(page: Page) -> None:
    with Receiver() as receiver:
        add(page, "night shift", receiver.url)
        assert page.locator(".secret").inner_text().startswith("whsec_")
        page.get_by_role("button", name="I have it").click()
        row = page.locator("tr[data-webhook]")
        expect(row).to_contain_text("night shift")
        assert "/hook" not in row.inner_text(), "the path may be a credential"
        page.get_by_role("button", name="Test night shift").click()
        expect(page.get_by_role("dialog").get_by_text("Delivered").first).to_be_visible()
        assert receiver.received[0].path == "/hook"
        page.get_by_role("button", name="Close").click()
        gone(page)
        shoot(page, "webhooks")
        page.get_by_role("button", name="Disable night shift").click()
        confirm(page, "Disable", "holidays")
        expect(row.locator(".state")).to_have_text("Disabled")
        page.get_by_role("button", name="Enable night shift").click()
        confirm(page, "Enable", "back")
        expect(row.locator(".state")).to_have_text("Enabled")
        page.get_by_role("button", name="Remove night shift").click()
        confirm(page, "Remove", "moved")
        expect(page.get_by_text("Nobody is told yet.")).to_be_visible()


def test_a_delivery_that_died_is_sent_again(page: Page) -> None:
    with Receiver(reply(500)) as receiver:
        add(page, "flaky", receiver.url)
        page.get_by_role("button", name="I have it").click()
        page.get_by_role("button", name="Test flaky").click()
        expect(page.get_by_role("dialog").get_by_text("Dead").first).to_be_visible()
        page.get_by_role("button", name="Close").click()
        page.get_by_role("button", name="Deliveries flaky").click()
        told = page.get_by_role("dialog").locator("tbody tr").first
        expect(told).to_contain_text("500 Internal Server Error")
        expect(told).not_to_contain_text("500 500")
        before = len(receiver.received)
        page.get_by_role("button", name="Send again").first.click()
        page.get_by_label("Reason, for the audit trail").fill("it is mended")
        page.get_by_role("dialog").last.get_by_role("button", name="Send again").click()
        expect(page.get_by_role("dialog")).to_have_count(1)
        receiver.wait_for(before + 1)


def test_an_address_that_may_not_be_reached_is_refused_where_it_was_typed(page: Page) -> None:
    add(page, "inside", "http://10.1.2.3/hook")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("10.1.2.3")
    page.keyboard.press("Escape")
    gone(page)
    expect(page.locator("tr[data-webhook]")).to_have_count(0)
