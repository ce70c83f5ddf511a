"""prime-rl: the stand-in, and the losses of the source where they are there."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from real_frameworks import needs, real
from rigs.prime_rl import PrimeRlRig

from trimtab.hooks import prime_rl
from trimtab.hooks.controls import Controls


@pytest.fixture
def losses() -> Iterator[Any]:
    settings = {"dppo_mask_low": 0.2, "dppo_mask_high": 0.2, "adv_tau": 1.0, "kl_tau": 1e-3}
    classes = {"DefaultLossConfig": lambda **given: SimpleNamespace(**(settings | given))}
    absent = ["prime_rl.configs", "jaxtyping", "beartype", "prime_rl.utils"]
    bare = ["prime_rl", "prime_rl.trainer", "prime_rl.trainer.rl"]
    given = {"prime_rl.configs.trainer": classes}
    with real("prime_rl.trainer.rl.loss", absent=absent, bare=bare, given=given) as module:
        yield module
    prime_rl.reset()


def computed(losses: Any, loss_fn: Any) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    old = -2 + 0.3 * torch.randn(2, 6, generator=generator)
    new = (old + 0.3 * torch.randn(2, 6, generator=generator)).requires_grad_()
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[:, 0] = False
    loss, _ = losses.compute_loss(
        list(new),
        list(old),
        None,
        list(torch.randn(2, 6, generator=generator)),
        list(mask),
        None,
        None,
        None,
        loss_fn,
        10,
        1,
        1,
    )
    loss.backward()
    assert new.grad is not None
    return loss.detach(), new.grad


@needs("prime_rl")
@pytest.mark.parametrize("attached", [False, True])
def test_the_released_loss_is_unchanged(losses: Any, attached: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    config = SimpleNamespace(dppo_mask_low=0.2, dppo_mask_high=0.2, adv_tau=1.0, kl_tau=1e-3)
    expected = computed(losses, lambda inputs: losses.default_loss_fn(inputs, config))
    if attached:
        monkeypatch.setenv("TRIMTAB_URL", "memory:")
        monkeypatch.setenv("TRIMTAB_JOB", "run")
        prime_rl.start()
        prime_rl._end_step()
    got = computed(losses, lambda inputs: prime_rl.loss(inputs, inner="default"))
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])
    if attached:
        prime_rl._end_step()
        attachment = prime_rl._PROCESS.attached.made()
        assert attachment is not None
        assert attachment.emitter.last_summary is not None
        assert (attachment.emitter.last_summary.tokens, attachment.failures) == (10, 0)


@needs("prime_rl")
def test_the_clipped_loss_is_ppos(losses: Any) -> None:
    def ppo(inputs: Any) -> Any:
        ratio = (inputs.trainer_logprobs - inputs.inference_logprobs).exp()
        loss = torch.maximum(-inputs.advantages * ratio, -inputs.advantages * ratio.clamp(0.9, 1.25))
        return losses.LossOutputs(loss=loss[inputs.loss_mask].sum(), metrics={})

    config = {"clip_low": 0.1, "clip_high": 0.25}
    _, gradient = computed(losses, lambda inputs: prime_rl.loss(inputs, inner="clipped", config=config))
    _, expected = computed(losses, ppo)
    assert torch.allclose(gradient, expected)
    assert (gradient == 0).sum() > 2  # the first tokens, and those that are clipped


def test_the_made_up_first_token_is_not_measured() -> None:
    rig = PrimeRlRig()
    rig.attach()
    rig.step()
    assert rig.attachment is not None
    rig.attachment.emitter.close()
    sent = rig.attachment.emitter.transport.sent  # type: ignore[attr-defined]
    assert [summary.tokens for summary in sent] == [9]  # of 6 + 5, also of the step before the ranks have met
    assert sent[0].nonfinite == {}
    rig.close()


def test_prime_rls_own_losses_have_no_control_to_turn_and_say_so() -> None:
    rig = PrimeRlRig("default")
    rig.attach()
    rig.step()
    assert rig.attachment is not None
    refusal = rig.attachment.emitter.capabilities.refusal("clip_high", 0.1)
    assert refusal == (
        "clip_high: restart in this trainer: prime-rl's losses mask by probability differences; "
        "set kwargs.inner = clipped for a clipped ratio"
    )
    rig.close()


def test_a_step_without_a_sample_on_this_rank_is_reported_too() -> None:
    rig = PrimeRlRig()
    rig.attach()
    rig.step()
    rig.optimizer.step()
    assert rig.attachment is not None
    assert rig.attachment.emitter.last_summary is not None
    assert (rig.attachment.emitter.last_summary.step, rig.attachment.emitter.last_summary.tokens) == (1, 0)
    rig.close()


def test_the_run_can_have_bounds_of_its_own() -> None:
    rig = PrimeRlRig("clipped", {"clip_low": 0.1, "dual_clip": 4.0})
    rig.attach()
    rig.step()
    assert rig.attachment is not None
    assert rig.attachment.controls == Controls(ratio_reference="sampler", clip_low=0.1, dual_clip=4.0)
    rig.close()


def test_a_loss_follows_the_settings_that_it_is_called_with() -> None:
    rig = PrimeRlRig("default", {"dppo_mask_high": 1e9, "dppo_mask_low": 1e9})
    wide = rig.step().loss
    rig.config = {"dppo_mask_high": -1e9, "dppo_mask_low": -1e9}
    rig.generator.manual_seed(7)
    assert not torch.equal(rig.step().loss, wide)  # of the same batch
    rig.close()
