"""Whether a process measures and reports at all."""

import os

from trimtab.hooks.duty import MAX_FAILING_STEPS, Duty


def test_it_fails_for_good_only_in_steps_in_a_row() -> None:
    duty = Duty()
    broken = [True] * (MAX_FAILING_STEPS - 1)
    assert not any(duty.count(broke=broke) for broke in [*broken, False, *broken])
    assert not duty.failed
    assert [duty.count(broke=True) for _ in range(2)] == [True, False]
    assert duty.failed
    assert not duty.count(broke=False)
    assert not duty.failed


def test_it_is_inert_while_off_or_stopped_and_in_a_fork() -> None:
    duty = Duty()
    assert not duty.inert
    duty.off = True
    assert duty.inert
    duty.off = False
    child = os.fork()
    if child == 0:
        os._exit(int(duty.forked and duty.inert))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert not duty.inert
    duty.stopped = True
    assert duty.inert
