import pytest
from alerting import START

from trimtab.api.notify.schedule import DELAYS_S, TRIES, Meaning, Schedule, meaning, retry_after


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, Meaning.DELIVERED),
        (202, Meaning.DELIVERED),
        (204, Meaning.DELIVERED),
        (None, Meaning.LATER),
        (302, Meaning.LATER),
        (400, Meaning.NEVER),
        (401, Meaning.NEVER),
        (404, Meaning.NEVER),
        (408, Meaning.LATER),
        (410, Meaning.GONE),
        (413, Meaning.NEVER),
        (429, Meaning.LATER),
        (500, Meaning.LATER),
        (503, Meaning.LATER),
        (599, Meaning.LATER),
    ],
)
def test_an_answer_says_whether_to_come_again(status: int | None, expected: Meaning) -> None:
    assert meaning(status) is expected


def test_the_schedule_is_the_published_one_and_jitter_only_shortens_it() -> None:
    assert DELAYS_S == (0, 5, 30, 120, 600, 1800, 7200)
    late, early, half = (Schedule(random=lambda share=share: share) for share in (1.0, 0.0, 0.5))
    failed = range(1, TRIES)
    assert [late.delay(attempts, None) for attempts in failed] == [5, 30, 120, 600, 1800, 7200]
    assert [half.delay(attempts, None) for attempts in failed] == [2.5, 15, 60, 300, 900, 3600]
    assert {early.delay(attempts, None) for attempts in failed} == {0}


def test_nobody_comes_back_sooner_than_asked() -> None:
    schedule = Schedule(random=lambda: 0.5)
    assert schedule.delay(1, 60.0) == 60
    assert schedule.delay(4, 60.0) == 300


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("30", 30),
        ("0.25", 0.25),
        ("-5", 0),
        ("999999999", 7200),
        ("inf", 7200),
        ("nan", None),
        ("soon", None),
        ("", None),
        ("Sat, 01 Jan 99999999999 00:00:00 GMT", None),
        ("Mon, 01 Jan 2030 00:00:00 +9999999999999", None),
        ("Fri, 15 Jan 2027 08:01:00 GMT", 60),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, expected: float | None) -> None:
    assert retry_after(header, START) == expected
