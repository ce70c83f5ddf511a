"""A job that is read from its log: the page says so, how late, what are bounds, and what has vanished."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsing import BROWSER, Browser, expect, shoot, visiting

from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.hooks.log_facts import LogFacts
from trimtab.hooks.records import StepSummary

pytestmark = BROWSER
RATIO = "sampling/importance_sampling_ratio/max"


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service.open(tmp_path / "agent.db")


def test_it_says_observe_only(browser: Browser, service: Service) -> None:
    for step in range(6):
        facts = LogFacts(
            source="wandb",
            framework="trl",
            censored={RATIO: "above"},
            vanished=("entropy",) if step == 5 else (),
            lag_seconds=12.0,
        )
        scalars = {"reward_mean": 0.5, "loss": 0.25, RATIO: 3.0}
        service.ingest(StepSummary(job="read", attempt=1, step=step, scalars=scalars, log=facts))
    with running(service) as url:
        with visiting(browser, url, "/") as page:
            expect(page.locator('tr[data-job="read"] .mode')).to_have_text("observe (logs)")
        with visiting(browser, url, f"/#/jobs/read?more={RATIO}") as page:
            facts_line = page.locator(".facts-line")
            expect(facts_line).to_contain_text("read from logs (wandb, trl)")
            expect(facts_line).to_contain_text("12 s behind when read")
            notices = page.locator(".notice")
            expect(notices.nth(0)).to_contain_text("Observe only (read from logs): nothing in the job can be changed")
            expect(notices.nth(0)).to_contain_text(f"{RATIO} >=3 (censored)")
            expect(notices.nth(1)).to_contain_text("Missing from the log, where every step had it: entropy.")
            expect(page.locator(".legend", has_text="≥ 3 (censored)")).to_have_count(1)
            shoot(page, "job-logs", whole=True)
    service.close()
