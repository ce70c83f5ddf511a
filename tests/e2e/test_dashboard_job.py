"""One job: its charts, and what is marked on them."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from agent_runs import Plant
from api_runs import drive
from browsing import BROWSER, WITHIN_MS, Browser, Page, columns, expect, shoot, visiting, wait_drawn
from dashboard_runs import advance, going_on

from trimtab.agent.state import Mode, OperatorAction, OperatorVerb
from trimtab.api.client import Client
from trimtab.api.server import running
from trimtab.api.service import Service

pytestmark = BROWSER

CHARTS = [
    "reward",
    "entropy",
    "ratio-negative",
    "ratio-positive",
    "asymmetry",
    "clip",
    "mismatch",
    "ess",
    "gradient",
    "garbage",
    "length",
]

INTERVALS = """
window.intervals = new Set();
window.begun = 0;
const [begin, end] = [window.setInterval, window.clearInterval];
window.setInterval = (...given) => {
    const id = begin(...given);
    window.begun += 1;
    window.intervals.add(id);
    return id;
};
window.clearInterval = (id) => { window.intervals.delete(id); end(id); };
"""
"""Counts what the page does again and again."""


def legend(page: Page, chart: str) -> str:
    return page.locator(f"#chart-{chart} .legend").inner_text()


def shapes(page: Page, chart: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = page.locator(f"#chart-{chart} .plot").evaluate("(plot) => plot.layout.shapes")
    return found


def test_every_signal_is_drawn_as_the_service_has_it(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/lost") as page, Client(url) as client:
        for chart in CHARTS:
            wait_drawn(page, chart)
        for chart, name in (("reward", "reward_mean"), ("gradient", "grad_norm")):
            (series,) = client.signals("lost", [name]).series
            assert columns(page, chart)[0] == (list(series.steps), list(series.values))
        assert len(columns(page, "entropy")) == 3, "by sign, and of all tokens"
        assert len(columns(page, "ratio-negative")) == 5
        shoot(page, "job", whole=True)


def test_incidents_and_changes_are_marked_on_all_charts(browser: Browser, service: Service) -> None:
    state = service.state("saved")
    fired = min(incident.since_step for incident in state.incidents.values())
    with running(service) as url, visiting(browser, url, "/#/jobs/saved") as page:
        for chart in CHARTS:
            wait_drawn(page, chart)
            grounds = [one for one in shapes(page, chart) if one["type"] == "rect" and one["yref"] == "paper"]
            assert min(one["x0"] for one in grounds) == fired  # type: ignore[type-var]
            expect(page.locator(f"#chart-{chart} .annotation-text").first).to_have_text("1")
        change = page.locator(".changes li").last
        expect(change).to_contain_text(
            "ratio reference: the run\u2019s own → recomputed, centering: the run\u2019s own → on"
        )
        expect(change.locator(".flag")).to_have_text("1")


def test_the_timeline_has_what_was_wanted_and_from_when_on_it_was_in_effect(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/saved") as page:
        bars = page.locator("#chart-timeline .bartext")
        expect(bars.filter(has_text="recomputed (agent)")).to_be_visible()
        expect(bars.filter(has_text="on (agent)")).to_be_visible()
        expect(page.locator("#chart-timeline .ytick").filter(has_text="! mismatch")).to_be_visible()


def test_limits_and_baselines_stand_beside_the_signals(browser: Browser, service: Service) -> None:
    advance(service, Plant(seed=0, job="long"), 40)
    with running(service) as url, visiting(browser, url, "/#/jobs/long") as page:
        wait_drawn(page, "mismatch")
        levels = [one["y0"] for one in shapes(page, "ratio-negative") if one["y0"] == one["y1"]]
        assert math.log(0.8) in levels
        assert "clip bound \u22120.223" in legend(page, "ratio-negative")
        (ground,) = [one for one in shapes(page, "reward") if one["type"] == "rect" and one.get("yref") != "paper"]
        track = service.state("long").tracks["reward_mean"].baseline.average
        assert track is not None
        assert ground["y1"] == pytest.approx(track.location + 3 * track.scale)
        assert "baseline" in legend(page, "reward")
        assert "alarm: reward collapse below" in legend(page, "reward")
        assert "alarm: reward decline below" in legend(page, "reward")
        assert "alarm: mismatch above 0.2 \u2191" in legend(page, "mismatch"), "too far above to be drawn"


def test_a_new_step_is_drawn_within_two_seconds(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/healthy") as page, Client(url) as client:
        expect(page.locator("#link")).to_have_text("Live")
        wait_drawn(page, "length")
        drive(client, going_on("healthy"), 1)
        page.wait_for_function(
            "() => document.querySelector('#chart-reward .plot').data[0].x.at(-1) === 24", timeout=WITHIN_MS
        )
        expect(page.locator(".facts-line")).to_contain_text("step 24")


def test_a_zoom_is_a_zoom_of_every_chart(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/lost") as page:
        for chart in CHARTS:
            wait_drawn(page, chart)
        box = page.locator("#chart-reward .nsewdrag").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 60, steps=5)
        page.mouse.up()
        ranges = "[...document.querySelectorAll('.chart:not(.timeline) .plot')].map((one) => one.layout.xaxis.range)"
        page.wait_for_function(f"() => {ranges}.every(([low, high]) => low > 4 && high < 19)")
        assert len({tuple(one) for one in page.evaluate(ranges)}) == 1
        page.get_by_role("button", name="Show all steps").click()
        page.wait_for_function(f"() => {ranges}.every(([low, high]) => low === 0 && high === 23)")


def test_single_steps_are_read_and_zoomed_with_the_keys_alone(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/lost") as page:
        wait_drawn(page, "length")
        page.locator("#chart-reward .plot").focus()
        page.keyboard.press("Home")
        expect(page.locator("#chart-entropy .at")).to_have_text("step 0")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#chart-reward [aria-live]")).to_have_text(re.compile(r"^Step 1: reward 0\.\d+"))
        page.keyboard.press("+")
        expect(page.get_by_role("button", name="Show all steps")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Show all steps")).to_be_hidden()


def test_an_older_attempt_is_shown_by_its_address_and_is_not_followed(browser: Browser, service: Service) -> None:
    service.ingest(replace(Plant(seed=1, job="healthy").advance(), attempt=2, step=20))
    with running(service) as url, visiting(browser, url, "/#/jobs/healthy") as page:
        expect(page.get_by_label("Attempt")).to_have_value("2")
        page.get_by_label("Attempt").select_option("1")
        page.wait_for_function("() => document.querySelector('#chart-reward .plot').data?.[0].x.at(-1) === 23")
        expect(page.get_by_text("an older one")).to_be_visible()
        assert page.evaluate("location.hash") == "#/jobs/healthy?attempt=1"
        page.reload()
        expect(page.get_by_label("Attempt")).to_have_value("1")


def test_another_signal_gets_a_chart(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/lost") as page:
        page.get_by_label("Add").select_option("loss")
        wait_drawn(page, "more-loss")
        assert page.evaluate("location.hash") == "#/jobs/lost?more=loss"


def test_what_was_not_observed_is_said_and_what_is_not_finite_is_a_cross(browser: Browser, service: Service) -> None:
    plant = going_on("healthy")
    summary = plant.advance()
    service.ingest(replace(summary, scalars={**summary.scalars, "grad_norm": math.nan}))
    with running(service) as url, visiting(browser, url, "/#/jobs/healthy") as page:
        wait_drawn(page, "gradient")
        expect(page.locator("#chart-gradient .points path")).to_have_count(1)
        assert "gradient nan" in legend(page, "gradient")
        service.ingest(replace(Plant(seed=0, job="bare").advance(), sketches={}, scalars={}))
        page.goto("/#/jobs/bare")
        expect(page.locator("#chart-mismatch .nothing")).to_be_visible()


def test_the_largest_step_is_told(browser: Browser, service: Service) -> None:
    for step in (2**53 - 2, 2**53 - 1):
        service.ingest(replace(Plant(seed=0, job="far").advance(), step=step))
    with running(service) as url, visiting(browser, url, "/#/jobs/far") as page:
        expect(page.locator(".facts-line")).to_contain_text(f"step {2**53 - 1}")
        expect(page.locator("#chart-reward .plot")).to_have_attribute("aria-label", re.compile(str(2**53 - 2)))


def test_the_colours_follow_the_system_and_a_choice(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/saved", scheme="dark") as page:
        wait_drawn(page, "reward")
        ground = "getComputedStyle(document.body).backgroundColor"
        line = "document.querySelector('#chart-reward .plot').data[0].line.color"
        dark = page.evaluate(f"[{ground}, {line}]")
        shoot(page, "job-dark")
        page.get_by_role("button", name="Theme: auto").click()
        page.wait_for_function(f"(before) => {ground} !== before[0] && {line} !== before[1]", arg=dark)
        page.reload()
        expect(page.get_by_role("button", name="Theme: light")).to_be_visible()


def test_an_alarm_is_said_aloud_when_it_begins(browser: Browser, service: Service) -> None:
    plant = Plant(seed=0, job="turning", noisy_from=30)
    with running(service) as url, Client(url) as client:
        drive(client, plant, 29)
        with visiting(browser, url, "/#/jobs/turning") as page:
            wait_drawn(page, "reward")
            expect(page.get_by_role("alert")).to_have_text("")
            drive(client, plant, 10)
            expect(page.locator("#alerts")).to_contain_text("mismatch is critical")


def test_going_back_leads_to_where_one_was(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url) as page:
        page.get_by_role("link", name="lost").click()
        expect(page.get_by_role("heading", name="lost", level=1)).to_be_focused()
        page.get_by_role("link", name=re.compile("^Incidents")).click()
        page.get_by_role("link", name="mismatch").click()
        expect(page.get_by_role("heading", name="Evidence")).to_be_visible()
        assert page.title() == "lost · mismatch · trimtab"
        page.go_back()
        page.go_back()
        expect(page.locator("#chart-reward")).to_be_visible()
        page.go_back()
        expect(page.get_by_role("heading", name="Jobs")).to_be_visible()


def test_a_job_that_is_not_there_is_said_to_be_missing(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url) as page:
        page.add_init_script(INTERVALS)
        page.goto("/#/jobs/nobody")
        page.reload()
        expect(page.get_by_role("heading", name="There is no such job")).to_be_visible()
        expect(page.locator("main").get_by_role("alert")).to_contain_text("there is no job 'nobody'")
        expect(page.locator("main").get_by_role("button")).to_have_count(0)
        expect(page.locator("#link")).to_have_text("Connected")
        assert page.evaluate("[window.begun > 0, window.intervals.size]") == [True, 0], "nothing is waited for"
        page.get_by_role("link", name="All jobs").click()
        expect(page.locator("tbody tr")).to_have_count(3)


def test_the_trail_says_from_what_to_what(browser: Browser, service: Service) -> None:
    patch = OperatorAction(job="lost", verb=OperatorVerb.PATCH_CONTROLS, issuer="root", reason="r")
    service.operate(replace(patch, reason="tighter", overrides={"clip_low": 0.1}))
    service.operate(replace(patch, reason="tighter still", overrides={"clip_low": 0.05}))
    service.operate(OperatorAction(job="lost", verb=OperatorVerb.SET_MODE, issuer="root", reason="r", mode=Mode.ADVISE))
    with running(service) as url, visiting(browser, url, "/#/jobs/lost/events") as page:
        first, second, mode = (
            page.locator(".trail li", has_text=text) for text in ("tighter", "still", "mode changed")
        )
        expect(first.last).to_contain_text("clip low: the run\u2019s own → 0.1")
        expect(second).to_contain_text("clip low: 0.1 → 0.05")
        expect(mode).to_contain_text("observe → advise")
        page.get_by_label("Show").select_option("all")
        verdict = page.locator(".trail li", has_text="verdict changed · mismatch").first
        expect(verdict).to_contain_text("OK → Critical")


def test_charts_whose_library_came_late_are_all_drawn(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/lost/controls") as page:
        expect(page.locator("tr[data-control]").first).to_be_visible()
        page.route("**/plotly-*.js", lambda route: route.abort(), times=1)
        page.get_by_role("link", name="Signals").click()
        expect(page.locator(".notice")).to_contain_text("The charts cannot be drawn")
        for chart in CHARTS:  # with the next look at the job
            wait_drawn(page, chart)
        expect(page.locator(".notice")).to_have_count(0)
        expect(page.locator("#chart-timeline .point path").first).to_be_attached()


def test_a_critical_job_that_falls_silent_is_said_to_be_both(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/lost") as page:
        badges = page.locator(".job-head .state")
        expect(badges).to_have_text(["Critical"])
        now = service.clock() + 3 * 3600
        service.clock = lambda: now
        page.get_by_role("link", name="Events").click()
        expect(badges).to_have_text(["Critical", "Silent"])


def test_a_notice_keeps_away_from_the_buttons_above_it(browser: Browser, service: Service) -> None:
    now = service.clock() + 3 * 3600
    service.clock = lambda: now
    with running(service) as url, visiting(browser, url, "/#/jobs/lost", width=390, height=844) as page:
        expect(page.locator(".notice")).to_contain_text("Nothing has come for long")
        head, notice = page.locator(".job-head").bounding_box(), page.locator(".notice").bounding_box()
        assert head is not None
        assert notice is not None
        assert notice["y"] - (head["y"] + head["height"]) >= 8
