"""What a person does on the page, with a reason, and what becomes of it."""

from __future__ import annotations

import pytest
from agent_runs import Plant
from api_runs import drive
from browsing import BROWSER, Browser, Locator, Page, confirm, expect, gone, shoot, visiting
from dashboard_runs import advance

from trimtab.agent.state import Mode
from trimtab.api.client import Client
from trimtab.api.recovery import mark_restored
from trimtab.api.server import running
from trimtab.api.service import Service

pytestmark = BROWSER

REASON = "Reason, for the audit trail"


@pytest.fixture
def asking(service: Service) -> Plant:
    """A run whose remedy waits for a person."""
    service.register("asking", config=None, mode=Mode.APPROVE, issuer="ada", reason="r")
    plant = Plant(seed=0, job="asking", noisy_from=8)
    advance(service, plant, 24)
    assert len(service.state("asking").proposals) == 1
    return plant


def control(page: Page, name: str) -> Locator:
    return page.locator(f'tr[data-control="{name}"]')


def test_a_proposal_is_approved_as_it_is_shown(browser: Browser, service: Service, asking: Plant) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/asking") as page, Client(url) as client:
        card = page.locator(".proposal")
        expect(card.get_by_role("heading", name="Waits for you")).to_be_visible()
        expect(card.locator(".diff")).to_contain_text("centering off → on")
        expect(card.locator("caption")).to_contain_text("Shadow evaluation")
        expect(card.locator("tbody tr").first).to_contain_text("Punished tokens that the clip silences")
        shoot(page, "proposal")
        card.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("dialog")).to_contain_text("ratio reference sampler → recomputed")
        page.get_by_role("dialog").get_by_role("button", name="Approve").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert service.state("asking").generation == 0, "nothing happens without a reason"
        shoot(page, "dialog")
        confirm(page, "Approve", "the evidence is clear")
        gone(page)
        expect(card).to_have_count(0)
        expect(page.locator(".changes li").first).to_contain_text("centering: the run\u2019s own → on")
        state = service.state("asking")
        assert (state.generation, state.overrides["centering"]) == (1, True)
        drive(client, asking, 2)
        page.get_by_role("link", name="Controls").click()
        expect(page.get_by_text("generation 1 · in effect")).to_be_visible()


@pytest.mark.usefixtures("asking")
def test_a_proposal_that_was_made_anew_is_not_approved_unseen(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/asking") as page, Client(url) as client:
        page.locator(".proposal").get_by_role("button", name="Approve").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        client.patch_controls("asking", {"clip_low": 0.1}, reason="meanwhile", issuer="bob")
        confirm(page, "Approve", "go")
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("proposal")
        assert service.state("asking").overrides == {"clip_low": 0.1}
        page.keyboard.press("Escape")
        gone(page)


@pytest.mark.usefixtures("asking")
def test_a_proposal_is_rejected(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/asking/incidents/mismatch") as page:
        page.locator(".proposal").get_by_role("button", name="Reject").click()
        confirm(page, "Reject", "the run is nearly over")
        gone(page)
        expect(page.locator(".proposal")).to_have_count(0)
        expect(page.locator(".trail")).to_contain_text("the run is nearly over")
        assert service.state("asking").proposals == ()


def test_a_control_is_turned_off_and_lifted_with_a_reason(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/saved/controls") as page:
        row = control(page, "centering")
        row.get_by_role("button", name="Turn centering off").click()
        confirm(page, "Apply", "is it needed?")
        expect(row).to_contain_text("person")
        assert service.state("saved").person_overrides == {"centering": False}
        row.get_by_role("button", name="Leave centering to the run again").click()
        page.get_by_label(REASON).fill("no")
        page.get_by_label(REASON).press("Tab")
        page.get_by_role("button", name="Apply").click()
        expect(row).to_contain_text("s own")
        assert service.state("saved").person_overrides == {}
        assert service.state("saved").reason == "no"
        shoot(page, "controls")


def test_a_change_meanwhile_is_explained_and_not_overwritten(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/saved/controls") as page, Client(url) as client:
        control(page, "clip_high").get_by_role("button", name="Set clip high").click()
        page.get_by_label("Value").fill("0.3")
        page.get_by_label(REASON).fill("wider")
        client.patch_controls("saved", {"clip_high": 0.25}, reason="a little wider", issuer="bob")
        page.get_by_role("button", name="Apply").click()
        told = page.get_by_role("dialog").get_by_role("alert")
        expect(told).to_contain_text("Somebody changed the controls meanwhile: bob, a little wider.")
        expect(told).to_contain_text("clip high is now 0.25")
        assert service.state("saved").person_overrides == {"clip_high": 0.25}
        page.get_by_role("button", name="Apply").click()
        gone(page)
        assert service.state("saved").person_overrides == {"clip_high": 0.3}


def test_a_value_that_cannot_be_is_refused_where_it_was_typed(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/saved/controls") as page:
        control(page, "sampler_format").get_by_role("button", name="Set sampler format").click()
        assert page.get_by_label("Value").locator("option").all_inner_texts() == ["bf16", "nvfp4"]
        page.get_by_role("button", name="Cancel").click()
        gone(page)
        control(page, "importance").get_by_role("button", name="Set importance").click()
        page.get_by_label("Value").select_option("tis")
        page.get_by_label(REASON).fill("r")
        page.get_by_role("button", name="Apply").click()
        gone(page)
        control(page, "ratio_reference").get_by_role("button", name="Set ratio reference").click()
        page.get_by_label("Value").select_option("sampler")
        confirm(page, "Apply", "r")
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("importance")


def test_the_kill_switch_wants_a_tick_and_a_reason(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/saved") as page:
        page.get_by_role("button", name="Kill switch").click()
        page.get_by_label(REASON).fill("nobody watches it tonight")
        page.get_by_role("button", name="Take the hands off").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert not service.state("saved").killed
        page.get_by_label("Yes, for saved").check()
        page.get_by_role("button", name="Take the hands off").click()
        gone(page)
        expect(page.locator(".notice")).to_contain_text("The kill switch is set")
        assert (service.state("saved").killed, service.state("saved").overrides) == (True, {})
        expect(page.get_by_role("button", name="observe", exact=True)).to_have_attribute("aria-pressed", "true")
        shoot(page, "killed")
        page.get_by_role("button", name="approve", exact=True).click()
        confirm(page, "Set the mode", "somebody is here again")
        gone(page)
        expect(page.locator(".notice")).to_have_count(0)
        assert service.state("saved").mode is Mode.APPROVE


def test_a_lock_that_comes_while_the_page_is_open_is_lifted_by_the_mode_that_is_set(
    browser: Browser, service: Service
) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/saved") as page:
        auto = page.get_by_role("button", name="auto", exact=True)
        expect(auto).to_have_attribute("aria-pressed", "true")
        mark_restored(service.database, issuer="ada")
        page.get_by_role("link", name="Events").click()
        expect(page.locator(".notice")).to_contain_text("The agent acts no more until somebody sets the mode")
        auto.click()
        confirm(page, "Set the mode", "it is as it was")
        gone(page)
        expect(page.locator(".notice")).to_have_count(0)
        assert service.state("saved").ladder.locked == ""


def test_an_incident_is_looked_after_silenced_and_told_again(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/lost/incidents/mismatch") as page:
        expect(page.get_by_role("heading", name="Evidence")).to_be_visible()
        seen = page.locator(".incident .table tbody tr").first
        expect(seen).to_contain_text("mismatch std")
        expect(seen.locator("td").last).to_have_text("0.2")
        expect(page.locator("#chart-more-mismatch_std .scatterlayer path.js-line").first).to_be_visible()
        shoot(page, "incident", whole=True)
        page.get_by_role("button", name="Acknowledge").click()
        confirm(page, "Acknowledge", "looking into it")
        expect(page.get_by_text("operator looks after it since step 23: looking into it")).to_be_visible()
        expect(page.get_by_role("button", name="Acknowledge")).to_be_disabled()
        page.get_by_role("button", name="Silence").click()
        page.get_by_label("For how many steps").fill("10")
        confirm(page, "Silence", "we know")
        expect(page.locator(".tag", has_text="silenced")).to_be_visible()
        (silence,) = service.state("lost").silences
        assert silence.fingerprint == "lost/mismatch"
        assert silence.until_tick is not None
        page.get_by_role("button", name="End the silence").click()
        confirm(page, "End the silence", "it matters again")
        expect(page.locator(".tag", has_text="silenced")).to_have_count(0)
        assert service.state("lost").silences == ()


def test_what_was_done_about_an_incident_is_undone(browser: Browser, service: Service) -> None:
    detector = service.state("saved").ladder.rungs[0].incident.split("/")[1]
    with running(service) as url, visiting(browser, url, f"/#/jobs/saved/incidents/{detector}") as page:
        expect(page.get_by_text("Still overridden for it: ratio reference, centering")).to_be_visible()
        page.get_by_role("button", name="Undo").click()
        confirm(page, "Lift", "let us see without")
        gone(page)
        expect(page.get_by_role("button", name="Undo")).to_have_count(0)
        assert service.state("saved").overrides == {}


def test_a_job_is_put_away_and_brought_back(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/jobs/lost/settings") as page:
        expect(page.get_by_role("heading", name="Limits of the agent")).to_be_visible()
        expect(page.locator(".limits")).to_contain_text("10 actions in any 1000 steps")
        shoot(page, "job-settings")
        page.get_by_role("button", name="Archive").click()
        confirm(page, "Archive", "it is over")
        expect(page.get_by_role("heading", name="Archived")).to_be_visible()
        page.get_by_role("link", name="Jobs", exact=True).first.click()
        expect(page.locator("tbody tr")).to_have_count(2)
        page.get_by_label("Archived").check()
        expect(page.locator("tbody .name a")).to_have_text(["lost"])
        page.get_by_role("link", name="lost").click()
        page.get_by_role("navigation", name="Parts of lost").get_by_role("link", name="Settings").click()
        page.get_by_role("button", name="Bring back").click()
        confirm(page, "Bring back", "it is not")
        expect(page.get_by_role("heading", name="Archive", exact=True)).to_be_visible()
