# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of policies. Needs torch, which it imports when a check runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ulna.core.constants import ACTION
from ulna.core.policy_config import PreTrainedConfig
from ulna.testing import batches
from ulna.testing.checks import NotExercised, check, expect, refused
from ulna.testing.seeding import seeded
from ulna.testing.suites.policies_files import PolicyFileChecks

if TYPE_CHECKING:
    from torch import Tensor

    from ulna.core.policies import PreTrainedPolicy

__all__ = ["PolicySuite"]


class PolicySuite(PolicyFileChecks):
    """Checks of a policy. Override the fixture `policy_config`; it returns settings with features, of tiny shapes.

    Override `batch` and `training_batch` where a policy needs other inputs (tokens, say), `action_loss` where the loss
    has other terms than the error of the actions, and `make` where building takes more than the settings.

    Attributes:
        vendor_modules: Libraries that the configuration module must not import.
        masks_padding: Whether padded actions are left out of the loss; False where they are supervised on purpose.
        padding_key: Key of the mask of padded actions, True where padded.
        tolerance: Largest difference between numbers that should be equal.
    """

    # Acting

    @check(
        "P13-action-shapes",
        "select_action returns (B, A) and predict_action_chunk (B, chunk, A), also when B is larger than the chunk.",
        "Cut chunks on their time axis, which is the second.",
    )
    def test_p13_action_shapes(self, policy_config: PreTrainedConfig) -> None:
        shape = self._action_shape(policy_config)
        for size in (1, self._steps(policy_config) + 3):
            policy, batch = self._make(policy_config), self.batch(policy_config, size)
            for action in self._select(policy, batch, self._steps(policy_config) + 1):
                text = f"select_action gave {tuple(action.shape)}, expected {(size, *shape)}"
                expect(tuple(action.shape) == (size, *shape), text)
            chunk = self._chunk(self._make(policy_config), batch)
            fits = chunk.ndim == 2 + len(shape) and chunk.shape[0] == size and tuple(chunk.shape[2:]) == shape
            text = (
                f"predict_action_chunk gave {tuple(chunk.shape)}, expected ({size}, chunk, {shape[0] if shape else ''})"
            )
            expect(fits and chunk.shape[1] >= self._steps(policy_config), text)

    @check(
        "P14-step-equals-chunk",
        "On a fresh policy select_action returns the first action of predict_action_chunk for the same observation.",
        "Let select_action fill its queue with predict_action_chunk, and let that work without a history.",
    )
    def test_p14_step_equals_chunk(self, policy_config: PreTrainedConfig) -> None:
        batch = self.batch(policy_config, 2)
        chunk = self._chunk(self._make(policy_config), batch)
        first = self._select(self._make(policy_config), batch)[0]
        expect(self._same(first, chunk[:, 0]), "the first action differs from the first of the chunk")

    @check(
        "P15-reset-forgets",
        "After reset nothing of the past episode is left: the next action is that of a fresh policy.",
        "Clear every queue and history in reset.",
    )
    def test_p15_reset_forgets(self, policy_config: PreTrainedConfig) -> None:
        old, new = self.batch(policy_config, 2, seed=3), self.batch(policy_config, 2, seed=4)
        used = self._make(policy_config)
        self._select(used, old)
        used.reset()
        times = self._steps(policy_config) + 1
        wanted = self._select(self._make(policy_config), new, times)
        found = self._select(used, new, times)
        expect(all(map(self._same, wanted, found)), "the first actions after reset() depend on the episode before")

    @check(
        "P16-drop-queued-actions",
        "After drop_queued_actions the next action answers the next observation, not an older one.",
        "Keep queued actions in an attribute named in _action_queue_attrs.",
    )
    def test_p16_drop_queued_actions(self, policy_config: PreTrainedConfig) -> None:
        if policy_config.n_obs_steps > 1 or self._steps(policy_config) < 2:
            raise NotExercised("it keeps a history of observations, or executes one action at a time")
        old, new = self.batch(policy_config, 2, seed=3), self.batch(policy_config, 2, seed=4)
        used = self._make(policy_config)
        self._select(used, old)
        used.drop_queued_actions()
        wanted, found = self._select(self._make(policy_config), new)[0], self._select(used, new)[0]
        expect(self._same(wanted, found), "after drop_queued_actions() an action of the old chunk was returned")

    @check(
        "P17-deterministic",
        "The same weights, observation and seed give the same actions and the same loss.",
        "Draw random numbers from torch's generator alone.",
    )
    def test_p17_deterministic(self, policy_config: PreTrainedConfig) -> None:
        batch, training = self.batch(policy_config, 2), self.training_batch(policy_config, 2)
        pairs = [
            (self._chunk(p, batch), self._loss(p, training)[0].detach()) for p in map(self._make, [policy_config] * 2)
        ]
        expect(
            self._same(pairs[0][0], pairs[1][0]), "two policies with the same weights and seed predict other actions"
        )
        expect(self._same(pairs[0][1], pairs[1][1]), "two policies with the same weights and seed have another loss")

    @check(
        "P18-no-gradient-when-acting",
        "Actions carry no gradient.",
        "Decorate select_action and predict_action_chunk with torch.no_grad().",
    )
    def test_p18_no_gradient_when_acting(self, policy_config: PreTrainedConfig) -> None:
        policy, batch = self._make(policy_config), self.batch(policy_config, 2)
        with seeded(1):
            found = {
                "select_action": policy.select_action(batch),
                "predict_action_chunk": policy.predict_action_chunk(batch),
            }
        for name, action in found.items():
            expect(not action.requires_grad, f"what {name} returned requires a gradient")

    @check(
        "P19-batch-is-unchanged",
        "forward, select_action and predict_action_chunk leave the caller's batch as it was.",
        "Work on a shallow copy, and on new tensors instead of in place.",
    )
    def test_p19_batch_is_unchanged(self, policy_config: PreTrainedConfig) -> None:
        calls: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
            "select_action": (lambda p, b: p.select_action(b), self.batch(policy_config, 2)),
            "predict_action_chunk": (lambda p, b: p.predict_action_chunk(b), self.batch(policy_config, 2)),
            "forward": (lambda p, b: p.forward(b), self.training_batch(policy_config, 2)),
        }
        for name, (call, batch) in calls.items():
            before = batches.copied(batch)
            call(self._make(policy_config), batch)
            differ = batches.differences(before, batch, 0.0)
            expect(not differ, f"{name} changed {', '.join(differ)} of the caller's batch")

    # Learning

    @check(
        "P20-loss-trains",
        "forward returns a finite scalar whose gradient reaches a trainable parameter.",
        "Return the loss undetached, averaged over the batch.",
    )
    def test_p20_loss_trains(self, policy_config: PreTrainedConfig) -> None:
        policy = self._make(policy_config)
        policy.train()
        loss, figures = self._loss(policy, self.training_batch(policy_config, 2))
        expect(loss.ndim == 0, f"the loss has the shape {tuple(loss.shape)}, expected a scalar")
        expect(bool(loss.isfinite()), f"the loss is {float(loss.detach())}")
        expect(figures is None or isinstance(figures, dict), f"the figures are a {type(figures).__name__}")
        loss.backward()  # type: ignore[no-untyped-call]
        moved = [p for p in policy.parameters() if p.grad is not None and bool(p.grad.abs().sum() > 0)]
        expect(moved, "no parameter got a gradient")

    @check(
        "P21-loss-for-each-sample",
        "forward(batch, reduction='none') returns a finite loss for each sample, of shape (B,).",
        "Average over time and action axes only.",
    )
    def test_p21_loss_for_each_sample(self, policy_config: PreTrainedConfig) -> None:
        loss, _ = self._loss(self._make(policy_config), self.training_batch(policy_config, 3), reduction="none")
        expect(tuple(loss.shape) == (3,), f"the loss has the shape {tuple(loss.shape)}, expected (3,)")
        expect(bool(loss.isfinite().all()), f"the losses are {loss.tolist()}")

    def _mask(self, batch: dict[str, Any]) -> Tensor:
        if not self.masks_padding:
            raise NotExercised("masks_padding is False: padded actions are supervised on purpose")
        if self.padding_key not in batch or batch[self.padding_key].shape[1] < 2:
            raise NotExercised("its training batches have no chunk of actions")
        mask: Tensor = batch[self.padding_key]
        return mask

    def _padded(self, policy: PreTrainedPolicy, batch: dict[str, Any], pad: Tensor) -> float:
        return self.action_loss(*self._loss(policy, {**batch, self.padding_key: pad}))

    @check(
        "P22-padding-does-not-dilute",
        "The loss is the mean over actions that are not padded, whether 0, 50, 70 or 100 % are; it is 0 if all are.",
        "Divide the sum of the masked errors by the number of valid elements, at least 1.",
    )
    def test_p22_padding_does_not_dilute(self, policy_config: PreTrainedConfig) -> None:
        import torch

        policy, batch = self._make(policy_config), self.training_batch(policy_config, 4)
        none = torch.zeros_like(self._mask(batch))
        length, whole = none.shape[1], self._padded(policy, batch, none)
        parts = {"the first half of the samples": (torch.arange(len(none)) >= len(none) // 2)[:, None] | none}
        for share in (0.5, 0.7):
            count = min(length - 1, max(1, round(share * length)))
            parts[f"{share:.0%} of each chunk"] = (torch.arange(length) >= length - count)[None] | none
        for what, pad in parts.items():
            valid = float((~pad).float().mean())
            mixed = valid * self._padded(policy, batch, pad) + (1 - valid) * self._padded(policy, batch, ~pad)
            text = f"with {what} padded, the mean over valid actions does not add up: {mixed:.6g}, unpadded {whole:.6g}"
            expect(abs(mixed - whole) <= 1e-3 * max(abs(whole), 1e-3), text)
        empty = self._padded(policy, batch, ~none)
        expect(abs(empty) < 1e-6, f"with everything padded the loss is {empty}, expected 0")

    @check(
        "P23-padded-values-do-not-matter",
        "What stands in padded actions does not change the loss.",
        "Multiply the errors with the mask before summing.",
    )
    def test_p23_padded_values_do_not_matter(self, policy_config: PreTrainedConfig) -> None:
        policy, batch = self._make(policy_config), self.training_batch(policy_config, 4)
        pad = self._mask(batch).clone()
        pad[:, pad.shape[1] // 2 :] = True
        other = batch[ACTION].clone()
        other[pad] += 7.0
        one, two = self._padded(policy, batch, pad), self._padded(policy, {**batch, ACTION: other}, pad)
        expect(
            abs(one - two) <= 1e-4 * max(abs(one), 1e-3), f"other padded actions changed the loss from {one} to {two}"
        )

    @check(
        "P24-mask-is-required",
        "A training batch of chunks without the padding mask is an error.",
        "Read batch['action_is_pad'], not batch.get(...).",
    )
    def test_p24_mask_is_required(self, policy_config: PreTrainedConfig) -> None:
        policy, batch = self._make(policy_config), self.training_batch(policy_config, 2)
        self._mask(batch)
        with refused((KeyError, ValueError), f"a training batch without {self.padding_key!r}"):
            self._loss(policy, {k: v for k, v in batch.items() if k != self.padding_key})
