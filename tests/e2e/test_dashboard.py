"""The page in a real browser."""

import re
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from agent_runs import Plant
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from trimtab.agent.state import Mode, OperatorAction, OperatorVerb
from trimtab.api.server import running
from trimtab.api.service import Service

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
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
LINE = re.compile(r"^M[\d.]+ [\d.]+L")
HOSTILE = "<img src=x onerror=window.hacked=1>"

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """One run saved by the agent, one lost, one healthy."""
    service = Service.open(tmp_path / "agent.db")
    service.register("saved", config=None, mode=Mode.AUTO, issuer="me", reason="to be saved")
    for job, noisy_from in (("healthy", None), ("lost", 8), ("saved", 8)):
        plant = Plant(seed=0, job=job, noisy_from=noisy_from)
        for _ in range(24):
            plant.obey(service.ingest(plant.advance()).command)
    return service


@pytest.fixture
def page(browser: Browser, service: Service) -> Iterator[Page]:
    """The page on the saved run; any error in it fails the test."""
    errors: list[str] = []
    with running(service) as url:
        page = browser.new_page(base_url=url, viewport={"width": 1300, "height": 900})
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if is_fault(message) else None)
        page.goto("/?job=saved")
        expect(page.locator("#link")).to_have_text("live")
        yield page
        page.close()
    assert errors == []


def is_fault(message: ConsoleMessage) -> bool:
    """An error of the page's own; the browser also logs every refusal of the service's."""
    return message.type == "error" and not message.text.startswith("Failed to load resource")


def test_jobs_verdicts_charts_and_marks_are_drawn(page: Page) -> None:
    expect(page.locator("#jobs button")).to_have_count(3)
    expect(page.get_by_role("heading", name="saved")).to_be_visible()
    charts = page.locator("figure.chart")
    assert charts.count() == 6
    for i in range(6):
        expect(charts.nth(i).locator("path.s0")).to_have_attribute("d", LINE)
        expect(charts.nth(i).locator("rect.span").first).to_be_visible()
        expect(charts.nth(i).locator("text.tag").first).to_be_visible()
        expect(charts.nth(i).locator("text.flag-label").first).to_have_text("1")
    quantiles = charts.filter(has_text="5 % quantile")
    expect(quantiles.locator("path.s1")).to_be_visible()
    expect(page.locator(".notes li").first).to_contain_text("ratio reference = recomputed, centering = on (agent)")


def test_what_nobody_saw_is_grey(page: Page, service: Service) -> None:
    service.register("silent", config=None, mode=None, issuer="me", reason="r")
    service.ingest(replace(Plant(seed=0, job="silent").advance(), sketches={}, scalars={}))
    page.get_by_role("button", name="silent").click()
    expect(page.get_by_role("heading", name="silent")).to_be_visible()
    chips = page.locator("#verdicts .chip.not_observed")
    expect(chips.first).to_be_visible()
    assert green(page) not in painted(page, "#verdicts .chip.not_observed")
    expect(page.locator("figure.chart", has_text="Reward").get_by_text("not observed").first).to_be_visible()


def green(page: Page) -> str:
    """The page's colour of OK."""
    colour = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--ok').trim()")
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


def painted(page: Page, selector: str) -> set[str]:
    """Colours of the text and the background of these elements."""
    colours = "all => all.flatMap((one) => [getComputedStyle(one).color, getComputedStyle(one).backgroundColor])"
    return set(page.locator(selector).evaluate_all(colours))


def test_a_person_turns_a_control_off_and_lifts_it_with_a_reason(page: Page, service: Service) -> None:
    row = page.locator("#controls tr", has_text="centering")
    row.get_by_role("button", name="Turn centering off").click()
    page.get_by_label("Reason, for the audit trail").fill("is it needed?")
    page.get_by_role("button", name="Apply").click()
    expect(row).to_contain_text("off (person)")
    assert service.state("saved").person_overrides == {"centering": False}
    row.get_by_role("button", name="Leave centering to the run again").click()
    page.get_by_label("Reason, for the audit trail").fill("no")
    page.keyboard.press("Enter")
    expect(row).to_contain_text("own")
    assert service.state("saved").person_overrides == {}
    assert service.state("saved").reason == "no"


def test_a_refusal_is_shown_where_the_value_was_typed(page: Page, service: Service) -> None:
    page.locator("#controls tr", has_text="clip high").get_by_role("button", name="Set clip high").click()
    page.locator("#ask-input").fill("0.3")
    page.get_by_label("Reason, for the audit trail").fill("wider")
    generation = service.state("saved").generation
    page.evaluate(
        "fetch('/v1/jobs/saved/controls', {method: 'PATCH', headers: {'content-type': 'application/json'},"
        " body: JSON.stringify({overrides: {clip_low: 0.1}, reason: 'meanwhile'})})"
    )
    page.wait_for_function(
        "async (g) => (await (await fetch('/v1/jobs/saved/controls')).json()).generation > g", arg=generation
    )
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("alert")).to_contain_text(f"the controls are at generation {generation + 1}")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#ask")).to_be_hidden()


def test_the_mode_is_switched_and_a_proposal_approved(page: Page, service: Service) -> None:
    page.get_by_role("button", name="lost").click()
    page.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_label("Reason, for the audit trail").fill("let it propose")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#mode [aria-pressed=true]")).to_have_text("Approve")
    plant = Plant(seed=0, job="lost", noisy_from=8)
    plant.step = 23
    for _ in range(6):
        service.ingest(plant.advance())
    page.locator("#proposals").get_by_role("button", name="Approve").click()
    page.get_by_label("Reason, for the audit trail").fill("go")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#sync")).to_contain_text("waiting for the trainer")
    assert service.state("lost").generation == 1


def test_new_steps_appear_without_reloading(page: Page, service: Service) -> None:
    plant = Plant(seed=0, job="saved")
    plant.step = 23
    service.ingest(plant.advance())
    expect(page.locator("#where")).to_contain_text("step 24")


def test_text_from_a_run_is_text(page: Page, service: Service) -> None:
    service.operate(
        OperatorAction(
            job="saved",
            verb=OperatorVerb.PATCH_CONTROLS,
            issuer=HOSTILE,
            reason=HOSTILE,
            overrides={"clip_low": 0.1},
        )
    )
    expect(page.locator("#events")).to_contain_text(HOSTILE)
    assert page.locator("#events img").count() == 0
    assert page.evaluate("window.hacked") is None


def test_single_steps_are_read_with_the_arrow_keys(page: Page) -> None:
    chart = page.locator("figure.chart", has_text="Reward")
    chart.locator("svg").focus()
    page.keyboard.press("Home")
    expect(chart.locator(".readout")).to_contain_text("step 0 ·")
    page.keyboard.press("ArrowRight")
    expect(chart.locator(".readout")).to_contain_text("step 1 ·")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1300, "dark")])
def test_it_fits_the_screen_and_every_control_has_a_name(
    browser: Browser, service: Service, width: int, scheme: str
) -> None:
    with running(service) as url:
        page = browser.new_page(base_url=url, viewport={"width": width, "height": 844}, color_scheme=scheme)
        page.goto("/?job=saved")
        expect(page.locator("#link")).to_have_text("live")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        names = page.locator("button, input, select").evaluate_all(
            "all => all.map((one) => (one.labels?.[0]?.textContent || one.ariaLabel || one.textContent || '').trim())"
        )
        assert len(names) > 15
        assert all(names)
        page.close()


def test_a_service_that_is_gone_is_told(browser: Browser, service: Service) -> None:
    with running(service) as url:
        page = browser.new_page(base_url=url)
        page.goto("/?job=healthy")
        expect(page.locator("#link")).to_have_text("live")
        expect(page.locator("#overall .chip.ok")).to_be_visible()
        assert painted(page, "#overall .chip, #verdicts .chip, #jobs .dot") >= {green(page)}
    expect(page.locator("#link")).to_contain_text("does not answer")
    assert green(page) not in painted(page, "#overall .chip, #verdicts .chip, #jobs .dot")
    page.close()


def test_a_run_of_which_only_the_numbers_themselves_were_judged_is_not_green(page: Page, service: Service) -> None:
    service.ingest(Plant(seed=0, job="first-step").advance())
    page.get_by_role("button", name="first-step").click()
    expect(page.get_by_role("heading", name="first-step")).to_be_visible()
    expect(page.locator("#overall .chip")).to_contain_text("Inconclusive")
    expect(page.locator("#where")).to_contain_text("5 of 19 detectors could judge")
    assert green(page) not in painted(page, "#overall .chip, #jobs button[aria-current=true] .dot")


def test_a_job_that_cannot_be_read_is_told_and_not_green(page: Page, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "agent.db") as connection:
        connection.execute("UPDATE jobs SET config = '{\"gone\": 1}' WHERE name = 'healthy'")
        connection.execute("DELETE FROM run_states WHERE job_id = (SELECT id FROM jobs WHERE name = 'healthy')")
    page.get_by_role("button", name="healthy").click()
    expect(page.locator("#link")).to_contain_text("job 'healthy': its settings")
    assert green(page) not in painted(page, "#jobs button[aria-current=true] .dot")
    page.get_by_role("button", name="saved").click()
    expect(page.locator("#link")).to_have_text("live")


def test_a_silent_job_is_not_green_and_its_age_is_told(page: Page, service: Service) -> None:
    now = service.clock() + 3 * 3600
    service.clock = lambda: now
    page.get_by_role("button", name="healthy").click()
    expect(page.locator("#where")).to_contain_text("silent for 3 h")
    assert green(page) not in painted(page, "#overall .chip, #verdicts .chip, #jobs .dot")


def test_the_largest_step_is_drawn(page: Page, service: Service) -> None:
    for step in (2**53 - 2, 2**53 - 1):
        service.ingest(replace(Plant(seed=0, job="far").advance(), step=step))
    page.get_by_role("button", name="far").click()
    expect(page.locator("#where")).to_contain_text(f"step {2**53 - 1}")
