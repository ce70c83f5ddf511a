"""The cumulative sums against their recursion, and the run lengths that the docstring claims."""

import numpy as np
import pytest

from trimtab.agent.checks import ConfigError
from trimtab.agent.cusum import Cusum, CusumSettings

SETTINGS = CusumSettings()


def steps_to_alarm(shift: float) -> int:
    cusum, steps = Cusum(), 0
    while cusum.up <= SETTINGS.h:
        cusum, steps = cusum.updated(shift, SETTINGS), steps + 1
    return steps


@pytest.mark.parametrize(("shift", "steps"), [(4.0, 7), (8.0, 3), (1e9, 3)])
def test_a_shift_alarms_after(shift: float, steps: int) -> None:
    assert steps_to_alarm(shift) == steps


def test_the_recursion_on_random_input() -> None:
    z = np.random.default_rng(0).normal(0, 4, 500)
    cusum, up, down = Cusum(), 0.0, 0.0
    for x in z:
        cusum = cusum.updated(float(x), SETTINGS)
        cut = min(max(x, -8.0), 8.0)
        up, down = min(max(up + cut - 1, 0), 40), min(max(down - cut - 1, 0), 40)
        assert (cusum.up, cusum.down) == pytest.approx((up, down))


def test_white_noise_never_alarms_even_half_a_sd_off() -> None:
    rng = np.random.default_rng(1)
    cusum = Cusum()
    for x in rng.normal(0.5, 1.0, 20_000):
        cusum = cusum.updated(float(x), SETTINGS)
        assert cusum.up <= SETTINGS.h


def test_one_wild_step_never_alarms_alone() -> None:
    assert Cusum().updated(1e300, SETTINGS).up == 7.0


@pytest.mark.parametrize("bad", [{"k": 0.0}, {"h": -1.0}, {"cut": 0.5}, {"cut": 30.0}])
def test_bad_settings_name_the_field(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"^detectors\.drift\.cusum\.[a-z]+: .* must be "):
        CusumSettings(**bad).check("detectors.drift.cusum")
