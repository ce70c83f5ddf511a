"""The benchmark of scrapes: its peer writes what we write, and its figures are of what it says."""

from prometheus_client import generate_latest
from scrapes import parsed

from trimtab.api.bench.scrape import _registry, bench_scrape


def test_the_peer_writes_the_same_samples() -> None:
    page = (
        b'# HELP trimtab_step Newest.\n# TYPE trimtab_step gauge\ntrimtab_step{job="a"} 3\ntrimtab_step{job="b"} +Inf\n'
    )
    assert parsed(generate_latest(_registry(page)).decode()) == parsed(page.decode())


def test_figures_are_of_as_many_jobs_as_were_asked_for() -> None:
    few, more = bench_scrape(jobs=1, repeats=2), bench_scrape(jobs=3, repeats=2)
    assert (few["jobs"], more["jobs"], more["repeats"]) == (1, 3, 2)
    of_each = (more["samples"] - few["samples"]) / 2
    assert of_each == int(of_each) > 60
    assert set(few["scrape"]) == {"median", "p10", "p90"}
