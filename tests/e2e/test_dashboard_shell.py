"""The page around its views: tokens, text that would be code, keys alone, narrow screens, a service that is gone."""

from __future__ import annotations

import re

import pytest
from access_runs import issued
from alerting import endpoint
from browsing import BROWSER, Browser, Page, confirm, expect, gone, shoot, visiting, wait_drawn
from dashboard_runs import HOSTILE, advance, going_on

from trimtab.agent.state import OperatorAction, OperatorVerb
from trimtab.api.access.scopes import Scope
from trimtab.api.notify.settings import AlertSettings
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.storage.endpoints import Endpoints
from trimtab.storage.tokens import Tokens
from trimtab.storage.values import Origin

pytestmark = BROWSER

VIEWS = {
    "/#/": "tbody tr .spark path.js-line",
    "/#/jobs/saved": "#chart-gradient path.js-line",
    "/#/jobs/lost/incidents": ".incidents tbody tr",
    "/#/jobs/lost/incidents/mismatch": "#chart-more-reward_mean path.js-line",
    "/#/jobs/saved/controls": "tr[data-control]",
    "/#/jobs/saved/events": ".trail li",
    "/#/jobs/saved/settings": ".limits dd",
    "/#/settings": "section[aria-label=Tokens] :is(p, tr[data-token])",
}
"""By the address of a view, what is there once it is all there."""
NAMES = "all => all.map((one) => (one.labels?.[0]?.textContent || one.ariaLabel || one.textContent || '').trim())"
"""What every control is called."""
TWICE = """() => {
    const ours = [...document.querySelectorAll("[id]")].filter((one) => !one.closest(".plot, .spark"));
    const ids = ours.map((one) => one.id);
    return ids.filter((id, place) => ids.indexOf(id) !== place);
}"""
"""Ids that are given twice, plotly's own left out."""
LOST = """() => [...document.querySelectorAll("[aria-labelledby]")].map((one) => one.getAttribute("aria-labelledby"))
    .filter((id) => !document.getElementById(id))"""
"""Labels that there are not."""


def sign_in(page: Page, text: str) -> None:
    page.get_by_label("Token", exact=True).fill(text)
    page.get_by_role("button", name="Sign in").click()


def settled(page: Page, view: str) -> None:
    """Wait until all of the view is there."""
    expect(page.locator(VIEWS[view]).first).to_be_visible()


def test_a_token_lets_in_and_a_forged_request_is_refused(browser: Browser, service: Service) -> None:
    admin = issued(service, Scope.ADMIN)
    with running(service) as url, visiting(browser, url, "/#/jobs/saved/controls") as page:
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        expect(page.locator("#link")).to_be_hidden()
        shoot(page, "sign-in")
        sign_in(page, "ttb_wrong")
        expect(page.get_by_role("alert").filter(has_text="token")).to_be_visible()
        sign_in(page, admin)
        expect(page.get_by_role("heading", name="saved")).to_be_visible()
        expect(page.locator("#link")).to_have_text("Live")
        expect(page.locator("#session")).to_contain_text("the admin token")
        assert page.evaluate("document.cookie") == "", "no script can read the session"
        assert admin not in page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
        page.get_by_role("button", name="Turn centering off").click()
        confirm(page, "Apply", "with a session")
        gone(page)
        assert service.state("saved").issuer == "the admin token"
        forged = page.evaluate(
            "fetch('/v1/jobs/saved/kill', {method: 'POST', headers: {'content-type': 'application/json'},"
            " body: JSON.stringify({reason: 'forged'})}).then((answer) => answer.status)"
        )
        assert forged == 403
        assert not service.state("saved").killed
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.reload()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_who_may_only_read_is_offered_nothing_else(browser: Browser, service: Service) -> None:
    issued(service, Scope.ADMIN)
    reader = issued(service, Scope.READ)
    with running(service) as url, visiting(browser, url, "/#/jobs/lost/incidents/mismatch") as page:
        sign_in(page, reader)
        expect(page.get_by_role("heading", name="Evidence")).to_be_visible()
        for name in ("Acknowledge", "Silence", "Kill switch", "auto"):
            expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()
        page.goto("/#/settings")
        expect(page.get_by_text("Webhooks and tokens are for those who may do everything.")).to_be_visible()
        expect(page.get_by_role("heading", name="Tokens")).to_have_count(0)


def test_a_session_that_ended_leads_to_the_door(browser: Browser, service: Service) -> None:
    admin = issued(service, Scope.ADMIN)
    with running(service) as url, visiting(browser, url, "/#/jobs/saved") as page:
        sign_in(page, admin)
        wait_drawn(page, "reward")
        page.context.clear_cookies()
        service.ingest(going_on("saved").advance())
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_an_admin_makes_rotates_and_revokes_a_token(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/settings") as page:
        page.get_by_role("button", name="New token").click()
        page.get_by_label("Who will hold it").fill("ada")
        page.get_by_label("What it may do").select_option("admin")
        page.get_by_role("button", name="Make it").click()
        secret = page.locator(".secret").inner_text()
        assert re.fullmatch(r"ttb_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}", secret)
        page.get_by_role("button", name="I have it").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        sign_in(page, secret)
        expect(page.locator("tr[data-token]")).to_contain_text("ada")
        shoot(page, "settings", whole=True)
        page.get_by_role("button", name="Rotate ada").click()
        confirm(page, "Rotate", "it is time")
        expect(page.locator(".secret")).to_have_text(re.compile(f"^{secret[:13]}"))
        assert page.locator(".secret").inner_text() != secret
        page.get_by_role("button", name="I have it").click()
        page.get_by_role("button", name="Revoke ada").click()
        confirm(page, "Revoke", "she left")
        (stored,) = Tokens(service.database).all()
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert stored.id == secret[4:12]


def test_text_from_runs_and_people_is_text(browser: Browser, service: Service) -> None:
    service.operate(
        OperatorAction(
            job="saved",
            verb=OperatorVerb.PATCH_CONTROLS,
            issuer=HOSTILE,
            reason=HOSTILE,
            overrides={"clip_low": 0.1},
        )
    )
    advance(service, going_on("saved"), 2)
    with running(service) as url, visiting(browser, url, "/#/jobs/saved") as page:
        expect(page.locator(".changes")).to_contain_text(HOSTILE)
        expect(page.locator("#chart-timeline .bartext").filter(has_text="<b>bold</b>")).to_be_attached()
        for view, where in (("events", ".trail"), ("controls", "main header p")):
            page.goto(f"/#/jobs/saved/{view}")
            expect(page.locator(where).first).to_contain_text(HOSTILE)
        assert page.locator("main img, main b:text-is('bold')").count() == 0
        assert page.evaluate("window.hacked") is None


def test_everything_is_reached_and_done_with_the_keys_alone(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url) as page:
        expect(page.locator("tbody tr")).to_have_count(3)
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
        page.keyboard.press("Enter")
        expect(page.locator("#main")).to_be_focused()
        tab_to(page, "job-saved")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="saved", level=1)).to_be_focused()
        tab_to(page, "tab-controls")
        page.keyboard.press("Enter")
        expect(page.locator("[data-focus='centering-set']")).to_be_visible()
        tab_to(page, "centering-set")
        page.keyboard.press("Enter")
        expect(page.get_by_label("Reason, for the audit trail")).to_be_focused()
        page.keyboard.press("Escape")
        gone(page)
        expect(page.locator("[data-focus='centering-set']")).to_be_focused()
        page.keyboard.press("Enter")
        page.keyboard.type("by hand")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        gone(page)
        expect(page.locator("[data-focus='centering-set']")).to_be_focused()
        assert service.state("saved").person_overrides == {"centering": False}


def tab_to(page: Page, key: str) -> None:
    """Go on with the tab key until what has this key is in focus, which has to be seen."""
    for _ in range(60):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "[document.activeElement.dataset.focus, getComputedStyle(document.activeElement).outlineStyle,"
            " getComputedStyle(document.activeElement, '::after').outlineStyle]"
        )
        if focused[0] == key:
            assert "none" not in focused[1:] or focused.count("none") == 1, "the focus is seen"
            return
    raise AssertionError(f"{key} is not reached")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_every_view_fits_the_screen_and_every_control_has_a_name(
    browser: Browser, service: Service, width: int, scheme: str
) -> None:
    admin, far = issued(service, Scope.ADMIN), "https://alerts.example.com/hooks/of/the/night/shift"
    disabled = endpoint(far, name="the night shift of the cluster", enabled=False, disabled_reason="holidays")
    Endpoints(service.database).add(disabled, origin=Origin(), reason="r")
    with running(service) as url, visiting(browser, url, width=width, height=844, scheme=scheme) as page:
        sign_in(page, admin)
        settled(page, "/#/")
        for view in VIEWS:
            page.goto(view)
            settled(page, view)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view
            names = page.locator("button, input, select, textarea").evaluate_all(NAMES)
            assert all(names), (view, names)
            assert len(page.locator("h1").all()) == 1, view
            if view == "/#/settings":
                for one in page.locator("tr[data-webhook], tr[data-token]").all():
                    box = one.bounding_box()
                    assert box is not None
                    assert box["x"] + box["width"] <= width, "it is all in sight"
                expect(page.locator("tr[data-webhook]")).to_contain_text("the night shift of the cluster")
            shoot(page, f"{width}-{view.strip('/#').replace('/', '-') or 'jobs'}", whole=True)


def test_ids_are_given_once_and_labels_lead_somewhere(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url) as page:
        for view in VIEWS:
            page.goto(view)
            settled(page, view)
            assert page.evaluate(TWICE) == [], view
            assert page.evaluate(LOST) == [], view


def test_a_service_that_is_gone_is_told_and_nothing_is_green(browser: Browser, service: Service) -> None:
    green = "rgb(24, 121, 78)"
    with running(service) as url, visiting(browser, url, "/#/jobs/healthy") as page:
        badge = page.locator(".job-head .state.ok")
        expect(badge).to_have_css("color", green)
        page.context.set_offline(True)
        expect(page.locator("#link")).to_have_text("The service does not answer; trying again")
        expect(badge).not_to_have_css("color", green)
        shoot(page, "lost")
        page.context.set_offline(False)
        expect(page.locator("#link")).to_have_text(re.compile("Live|Polling"))
        expect(badge).to_have_css("color", green)


def test_an_address_that_leads_nowhere_says_so(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, "/#/nowhere") as page:
        expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()
        page.get_by_role("link", name="All jobs").click()
        expect(page.locator("tbody tr")).to_have_count(3)


def test_the_link_of_a_message_leads_to_its_job(browser: Browser, service: Service) -> None:
    with running(service) as url, visiting(browser, url, AlertSettings(public_url=url).link("lost")) as page:
        expect(page.get_by_role("heading", name="lost", level=1)).to_be_visible()
        assert page.evaluate("location.pathname + location.search + location.hash") == "/#/jobs/lost"
