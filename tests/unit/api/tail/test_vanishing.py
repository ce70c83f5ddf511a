"""Keys that stop while others go on."""

from trimtab.api.tail.vanishing import ALWAYS, Presence


def after(*steps: tuple[str, ...], begin: Presence | None = None, attempt: int = 1) -> Presence:
    found = begin or Presence()
    for names in steps:
        found = found.seen(attempt, names)
    return found


def test_a_name_is_missed_after_twenty_steps_with_it() -> None:
    both = ("loss", "entropy")
    assert after(*[both] * ALWAYS, ("loss",)).gone == ("entropy",)
    assert after(*[both] * (ALWAYS - 1), ("loss",)).gone == ()
    missed = after(*[both] * ALWAYS, ("loss",), ("loss",))
    assert missed.gone == ("entropy",)
    assert after(both, begin=missed).gone == ()
    assert after(both, ("loss",), begin=missed).gone == ()  # it has to be usual again first


def test_steps_of_another_kind_say_nothing() -> None:
    known = after(*[("loss", "entropy")] * ALWAYS)
    assert after(("eval_loss",), begin=known) == known
    assert after((), begin=known).gone == ()


def test_what_is_logged_now_and_then_is_not_missed() -> None:
    steps = [("loss", "mismatch_kl") if i % 10 == 0 else ("loss",) for i in range(100)]
    assert after(*steps).gone == ()


def test_a_new_attempt_begins_anew() -> None:
    known = after(*[("loss", "entropy")] * ALWAYS)
    assert after(("loss",), begin=known, attempt=2).gone == ()
