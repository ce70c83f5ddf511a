"""Token buckets on a clock that the test turns."""

import pytest
from access_runs import Clock

from trimtab.api.access import limits
from trimtab.api.access.limits import Limiter, LimitError, Limits, Rate, neighbourhood


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


def test_what_is_allowed_unless_said_otherwise() -> None:
    assert Limits() == Limits(
        ingest=Rate(per_second=50, burst=200),
        control=Rate(per_second=1, burst=10),
        failures=Rate(per_second=5 / 60, burst=5),
    )


def test_a_burst_passes_and_then_as_many_as_the_rate_allows(clock: Clock) -> None:
    limiter = Limiter(Rate(per_second=32, burst=200), clock)
    assert [limiter.take("a") for _ in range(200)] == [0.0] * 200
    assert limiter.take("a") == 1 / 32
    passed = 0
    for _ in range(1000):
        clock.now += 1 / 64
        passed += limiter.take("a") == 0.0
    assert passed == 500


def test_whoever_waits_as_long_as_they_were_told_passes(clock: Clock) -> None:
    limiter = Limiter(Rate(per_second=5 / 60, burst=5), clock)
    assert [limiter.take("a") for _ in range(5)] == [0.0] * 5
    wait = limiter.take("a")
    assert wait == pytest.approx(12.0)
    clock.now += wait - 0.001
    assert limiter.take("a") > 0
    clock.now += 0.002
    assert limiter.take("a") == 0.0


def test_to_be_refused_costs_nothing(clock: Clock) -> None:
    limiter = Limiter(Rate(per_second=1, burst=1), clock)
    assert limiter.take("a") == 0.0
    assert {limiter.take("a") for _ in range(50)} == {1.0}


def test_keys_have_buckets_of_their_own(clock: Clock) -> None:
    limiter = Limiter(Rate(per_second=1, burst=2), clock)
    assert [limiter.take("a") for _ in range(3)] == [0.0, 0.0, 1.0]
    assert [limiter.take("b") for _ in range(3)] == [0.0, 0.0, 1.0]


def test_a_clock_that_goes_back_gives_and_takes_nothing(clock: Clock) -> None:
    limiter = Limiter(Rate(per_second=1, burst=2), clock)
    assert limiter.take("a") == 0.0
    clock.now -= 500
    assert [limiter.take("a") for _ in range(2)] == [0.0, 1.0]


def test_many_keys_take_bounded_room_and_the_busy_stay_limited(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_KEYS", 10)
    limiter = Limiter(Rate(per_second=1, burst=2), clock)
    assert limiter.take("busy") == limiter.take("busy") == 0.0
    for number in range(1000):
        limiter.take(str(number))
        if number % 5 == 0:
            clock.now += 0.01
            limiter.take("busy")
    assert len(limiter._buckets) <= 10


@pytest.mark.parametrize(
    ("text", "rate"),
    [("50/200", Rate(per_second=50, burst=200)), ("0.5/1", Rate(per_second=0.5, burst=1))],
)
def test_a_rate_is_written_with_its_burst(text: str, rate: Rate) -> None:
    assert Rate.parse(text) == rate


@pytest.mark.parametrize("text", ["", "50", "50/", "/200", "0/5", "5/0", "-1/5", "1/1.5", "nan/1", "inf/1", "1e3/5"])
def test_what_is_no_rate_is_told(text: str) -> None:
    with pytest.raises(LimitError, match="such as 50/200"):
        Rate.parse(text)


@pytest.mark.parametrize(
    ("ip", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("testclient", "testclient"),
    ],
)
def test_of_ipv6_a_whole_network_is_one_address(ip: str, counted: str) -> None:
    assert neighbourhood(ip) == counted
