"""A real browser on the dashboard, which fails the test where the page has an error of its own."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
BROWSER = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]
"""What every test of the page is marked with."""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SHOTS = Path(os.environ.get("TRIMTAB_SHOTS", "runs/dashboard"))
"""Where the pictures of the pages that the tests went through are kept; git ignores it."""
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (one) => {
    window.violations.push(`${one.violatedDirective} ${one.blockedURI}`);
});
"""
WITHIN_MS = 2000
"""What the page is allowed from a step's ingest to showing it."""

SLOWEST_MS = 15_000
"""What is waited for where no time is promised: a machine may be busy with other things."""

__all__ = ["Browser", "Locator", "Page", "expect"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser that is installed."""
    expect.set_options(timeout=SLOWEST_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


class Visit:
    """A page, and what went wrong on it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if is_fault(message) else None)
        page.add_init_script(WATCH)

    def check(self) -> None:
        """The page has made no error, and asked for nothing that its policy forbids."""
        assert self.page.evaluate("window.violations") == []
        assert self.errors == []


def is_fault(message: ConsoleMessage) -> bool:
    """An error or a warning of the page's own; the browser also logs every refusal of the service's."""
    return message.type in ("error", "warning") and not message.text.startswith("Failed to load resource")


@contextmanager
def visiting(
    browser: Browser,
    url: str,
    path: str = "/",
    *,
    width: int = 1280,
    height: int = 900,
    scheme: str = "light",
    still: bool = True,
) -> Iterator[Page]:
    """A page of its own session at `path`; any error of it fails the test."""
    context = browser.new_context(
        base_url=url,
        viewport={"width": width, "height": height},
        color_scheme=scheme,  # type: ignore[arg-type]
        reduced_motion="reduce" if still else "no-preference",
    )
    try:
        visit = Visit(context.new_page())
        visit.page.goto(path)
        yield visit.page
        visit.check()
    finally:
        context.close()


def shoot(page: Page, name: str, *, whole: bool = False) -> None:
    """Keep a picture of the page as it is now."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=whole)


def columns(page: Page, chart: str) -> list[tuple[list[float], list[float | None]]]:
    """Steps and values of every line of a chart, as plotly has them."""
    found = page.locator(f"#chart-{chart} .plot").evaluate(
        "(plot) => plot.data.filter((one) => one.mode !== 'none' && one.yaxis !== 'y2')"
        ".map((one) => [Array.from(one.x), Array.from(one.y)])"
    )
    return [(x, y) for x, y in found]


def wait_drawn(page: Page, chart: str) -> None:
    """Wait until plotly has drawn a line of the chart."""
    expect(page.locator(f"#chart-{chart} .scatterlayer path.js-line").first).to_have_attribute(
        "d", re.compile(r"^M[-\d.,]+[LVH]")
    )


def confirm(page: Page, button: str, reason: str) -> None:
    """Give the reason that the dialog asks for, and press its button."""
    page.get_by_label("Reason, for the audit trail").fill(reason)
    page.get_by_role("dialog").get_by_role("button", name=button, exact=True).click()


def gone(page: Page) -> None:
    """Wait until no dialog is open."""
    expect(page.get_by_role("dialog")).to_have_count(0)
