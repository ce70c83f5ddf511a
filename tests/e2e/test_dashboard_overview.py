"""Every job at a glance."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from agent_runs import Plant
from api_runs import drive
from browsing import BROWSER, WITHIN_MS, Browser, Locator, Page, expect, shoot, visiting
from dashboard_runs import advance, going_on

from trimtab.agent.state import Mode
from trimtab.api.client import Client
from trimtab.api.server import running
from trimtab.api.service import Service

pytestmark = BROWSER


def row(page: Page, job: str) -> Locator:
    return page.locator(f'tr[data-job="{job}"]')


def names(page: Page) -> list[str]:
    return page.locator("tbody .name a").all_inner_texts()


def test_an_empty_service_says_how_to_attach_in_three_lines(browser: Browser, tmp_path: Path) -> None:
    with running(Service.open(tmp_path / "agent.db")) as url, visiting(browser, url) as page:
        expect(page.get_by_role("heading", name="No job has reported yet")).to_be_visible()
        lines = page.locator("pre").inner_text().splitlines()
        assert lines[0] == f'emitter = trimtab.attach("{url}", job="my-run")'
        assert len(lines) == 3
        shoot(page, "empty")


def test_jobs_are_listed_the_worst_first_with_what_is_worst_of_them(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url) as page:
        expect(row(page, "lost").locator(".state")).to_have_text("Critical")
        assert names(page) == ["lost", "saved", "healthy"]
        expect(row(page, "lost").locator(".worst b")).to_have_text("mismatch")
        expect(row(page, "saved").locator(".worst b")).to_have_text("mismatch")  # fires, and alarms no more
        expect(row(page, "saved").locator(".mode")).to_have_text("auto")
        expect(row(page, "healthy").locator(".step")).to_have_text("23")
        for job in names(page):
            expect(row(page, job).locator(".spark path.js-line")).to_be_visible()
            expect(row(page, job).locator(".spark")).to_have_attribute("aria-label", re.compile("^reward 0"))
        shoot(page, "overview")


def test_a_state_is_told_by_a_word_and_a_sign_beside_its_colour(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url) as page:
        for job, sign, word in (("lost", "critical", "Critical"), ("healthy", "ok", "OK")):
            expect(row(page, job).locator(".state use")).to_have_attribute("href", f"#i-{sign}")
            expect(row(page, job).locator(".state")).to_have_text(word)


def test_a_new_step_is_listed_within_two_seconds(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url) as page, Client(url) as client:
        expect(page.locator("#link")).to_have_text("Live")
        expect(row(page, "healthy").locator(".step")).to_have_text("23")
        expect(row(page, "healthy").locator(".spark path.js-line")).to_be_visible()
        drive(client, going_on("healthy"), 1)
        expect(row(page, "healthy").locator(".step")).to_have_text("24", timeout=WITHIN_MS)
        drive(client, Plant(seed=5, job="newcomer"), 1)
        expect(row(page, "newcomer").locator(".step")).to_have_text("0", timeout=WITHIN_MS)


def test_jobs_are_found_by_name_state_and_mode_and_the_address_keeps_what_was_asked(
    browser: Browser, service: Service
) -> None:
    with running(service) as url, visiting(browser, url) as page:
        page.get_by_role("button", name="Critical").click()
        expect(page.locator("tbody .name a")).to_have_text(["lost", "saved"])
        page.get_by_role("button", name="All").click()
        page.get_by_label("Search jobs by name").fill("HEAL")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.get_by_label("Mode").select_option("auto")
        expect(page.get_by_role("heading", name="No job matches")).to_be_visible()
        assert page.evaluate("location.hash") == "#/?q=HEAL&mode=auto"
        page.reload()
        expect(page.get_by_label("Search jobs by name")).to_have_value("HEAL")
        expect(page.get_by_label("Mode")).to_have_value("auto")


def test_what_nobody_saw_and_who_fell_silent_is_not_green(browser: Browser, service: Service) -> None:
    service.ingest(replace(Plant(seed=0, job="unseen").advance(), sketches={}, scalars={}))
    with running(service) as url, visiting(browser, url) as page:
        expect(row(page, "unseen").locator(".state")).to_have_text("Inconclusive")
        expect(row(page, "unseen").locator(".spark")).to_have_attribute("aria-label", "no reward reported")
        expect(row(page, "healthy").locator(".state")).to_have_text("OK")
        now = service.clock() + 3 * 3600
        service.clock = lambda: now
        page.reload()
        expect(row(page, "healthy").locator(".state")).to_have_text("Silent")
        expect(row(page, "healthy").locator(".age")).to_have_text("3 h")
        expect(row(page, "lost").locator(".state")).to_have_text("Critical")
        expect(page.locator("main .state.ok")).to_have_count(0)


def test_a_proposal_that_waits_is_told_in_the_list(browser: Browser, service: Service) -> None:
    service.register("asking", config=None, mode=Mode.APPROVE, issuer="ada", reason="r")
    advance(service, Plant(seed=0, job="asking", noisy_from=8), 24)
    with running(service) as url, visiting(browser, url) as page:
        expect(row(page, "asking").locator(".waits")).to_have_text("waits for you")


@pytest.mark.slow
def test_two_hundred_jobs_can_be_used(browser: Browser, tmp_path: Path) -> None:
    service = Service.open(tmp_path / "agent.db")
    for i in range(200):
        advance(service, Plant(seed=i, job=f"sweep-{i:03d}", noisy_from=3 if i % 40 == 7 else None), 6)
    with running(service) as url, visiting(browser, url) as page:
        expect(page.locator("tbody tr")).to_have_count(200)
        assert names(page)[:5] == ["sweep-007", "sweep-047", "sweep-087", "sweep-127", "sweep-167"]
        drawn = page.locator(".spark .main-svg")
        expect(drawn.first).to_be_visible()
        assert drawn.count() < 100, "sparklines are drawn where they are seen"
        page.get_by_label("Search jobs by name").fill("19")
        expect(page.locator("tbody tr")).to_have_count(12)
        shoot(page, "overview-200")
    service.close()
