# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of policies. Needs torch, which it imports when a check runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from ulna.core.constants import ACTION, CONFIG_NAME, WEIGHTS_NAME
from ulna.core.errors import CheckpointError, ConfigError, PluginNotFoundError
from ulna.core.policy_config import PreTrainedConfig
from ulna.testing import batches, configs
from ulna.testing.checks import NotExercised, Suite, check, expect, refused
from ulna.testing.isolation import recorded_io
from ulna.testing.seeding import seeded

if TYPE_CHECKING:
    from torch import Tensor

    from ulna.core.policies import PreTrainedPolicy

__all__ = ["PolicySuite"]

_PICKLES = (".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth")


class PolicySuite(Suite):
    """Checks of a policy. Override the fixture `policy_config`; it returns settings with features, of tiny shapes.

    Override `batch` and `training_batch` where a policy needs other inputs (tokens, say), `action_loss` where the loss
    has other terms than the error of the actions, and `make` where building takes more than the settings.

    Attributes:
        vendor_modules: Libraries that the configuration module must not import.
        masks_padding: Whether padded actions are left out of the loss; False where they are supervised on purpose.
        padding_key: Key of the mask of padded actions, True where padded.
        tolerance: Largest difference between numbers that should be equal.
    """

    subject: ClassVar[str] = "policy_config"
    vendor_modules: ClassVar[tuple[str, ...]] = ()
    masks_padding: ClassVar[bool] = True
    padding_key: ClassVar[str] = "action_is_pad"
    tolerance: ClassVar[float] = 1e-5

    @pytest.fixture
    def policy_config(self) -> PreTrainedConfig:
        """Give settings of a tiny policy. The one thing an author overrides."""
        made: PreTrainedConfig = self.missing_fixture()
        return made

    def make(self, config: PreTrainedConfig) -> PreTrainedPolicy:
        """Build a policy with fresh weights.

        Args:
            config: Settings of its own.

        Returns:
            The policy.
        """
        made: PreTrainedPolicy = config.load_implementation()(config, pretrained_backbones=False)
        return made

    def batch(self, config: PreTrainedConfig, size: int, seed: int = 0) -> dict[str, Any]:
        """Make a preprocessed observation, as `select_action` takes it.

        Args:
            config: Settings.
            size: Batch size.
            seed: Same seed, same values.

        Returns:
            Key to tensor (size, ...).
        """
        return batches.observation(config, size, seed)

    def training_batch(self, config: PreTrainedConfig, size: int, seed: int = 0) -> dict[str, Any]:
        """Make a preprocessed batch with actions, as `forward` takes it; nothing in it is padded.

        Args:
            config: Settings.
            size: Batch size.
            seed: Same seed, same values.

        Returns:
            Key to tensor (size, ...).
        """
        return batches.training(config, size, seed, self.batch(config, size, seed))

    def action_loss(self, loss: Tensor, figures: Mapping[str, Any] | None) -> float:
        """Return the part of the loss that is the error of the actions.

        Args:
            loss: What `forward` returned first.
            figures: What it returned second.

        Returns:
            The figure; default: the whole loss.
        """
        return float(loss.detach())

    def stats(self, config: PreTrainedConfig) -> dict[str, dict[str, Any]]:
        """Return statistics of a dataset that suits the policy.

        Args:
            config: Settings.

        Returns:
            Key to statistic to tensor.
        """
        return batches.statistics(config)

    # How checks build and run

    def _make(self, config: PreTrainedConfig) -> PreTrainedPolicy:
        """Build the policy; the same weights each time, in evaluation mode, reset."""
        with seeded(0):
            policy = self.make(config.model_copy(deep=True))
        policy.eval()
        policy.reset()
        return policy

    def _select(self, policy: PreTrainedPolicy, batch: dict[str, Any], times: int = 1) -> list[Tensor]:
        with seeded(1):
            return [policy.select_action(batches.copied(batch)).detach().clone() for _ in range(times)]

    def _chunk(self, policy: PreTrainedPolicy, batch: dict[str, Any]) -> Tensor:
        with seeded(1):
            return policy.predict_action_chunk(batches.copied(batch)).detach().clone()

    def _loss(self, policy: PreTrainedPolicy, batch: dict[str, Any], **named: Any) -> tuple[Tensor, Any]:
        with seeded(2):
            return policy.forward(batches.copied(batch), **named)

    def _same(self, one: Tensor, other: Tensor) -> bool:
        import torch

        return one.shape == other.shape and bool(torch.allclose(one, other, rtol=1e-4, atol=self.tolerance))

    def _action_shape(self, config: PreTrainedConfig) -> tuple[int, ...]:
        expect(config.action_feature is not None, "the settings have no action feature")
        return config.action_feature.shape if config.action_feature else ()

    def _steps(self, config: PreTrainedConfig) -> int:
        return int(getattr(config, "n_action_steps", 1))

    # Settings

    @check(
        "P01-config-round-trip",
        "The settings are the same after they were written as JSON and read again.",
        "Use types that pydantic writes and reads; avoid private state that changes fields.",
    )
    def test_p01_config_round_trip(self, policy_config: PreTrainedConfig) -> None:
        configs.survives_json(policy_config)

    @check(
        "P02-lean-config",
        "Importing the configuration class imports neither torch nor another heavy library.",
        "Keep the configuration in a module of its own and import libraries where they are used.",
    )
    def test_p02_lean_config(self, policy_config: PreTrainedConfig) -> None:
        configs.module_is_lean(type(policy_config), self.vendor_modules)

    @check(
        "P03-config-names-implementation",
        "The configuration class names, as `module:Class`, the policy it configures.",
        "Set implementation: ClassVar[str] in the configuration class.",
    )
    def test_p03_config_names_implementation(self, policy_config: PreTrainedConfig) -> None:
        configs.implementation_fits(policy_config, self._make(policy_config))

    @check(
        "P04-features-are-checked",
        "validate_features accepts these settings and raises ConfigError when there are no features at all.",
        "Check in validate_features that the inputs and outputs the policy needs are there.",
    )
    def test_p04_features_are_checked(self, policy_config: PreTrainedConfig) -> None:
        policy_config.validate_features()
        bare = policy_config.model_copy(deep=True)
        bare.input_features, bare.output_features = {}, {}
        with refused((ConfigError, ValueError), "validate_features() without any feature"):
            bare.validate_features()

    @check(
        "P05-unknown-field-is-kept",
        "A field of config.json that is not known is warned about, kept and written again, and never an error.",
        "Leave from_pretrained and to_dict of the configuration to the base class.",
    )
    def test_p05_unknown_field_is_kept(self, policy_config: PreTrainedConfig, tmp_path: Path) -> None:
        policy_config.save_pretrained(tmp_path)
        file = tmp_path / CONFIG_NAME
        file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), "field_of_the_future": [1, 2]}), "utf-8")
        with _warnings() as lines:
            config = type(policy_config).from_pretrained(tmp_path)
        expect(any("field_of_the_future" in line for line in lines), "no warning names the unknown field")
        again = tmp_path / "again"
        config.save_pretrained(again)
        kept = json.loads((again / CONFIG_NAME).read_text("utf-8")).get("field_of_the_future")
        expect(kept == [1, 2], f"the unknown field was written again as {kept!r}")

    @check(
        "P06-optimizer-preset",
        "get_optimizer_preset makes an optimizer of get_optim_params that reaches trainable tensors.",
        "Return from get_optim_params parameters or groups with `params`.",
    )
    def test_p06_optimizer_preset(self, policy_config: PreTrainedConfig) -> None:
        policy = self._make(policy_config)
        try:
            preset = policy_config.get_optimizer_preset()
        except PluginNotFoundError as error:
            raise NotExercised(f"its optimizer is not installed ({error.type})") from error
        made = preset.make(policy.get_optim_params())
        optimizers = made.values() if isinstance(made, dict) else [made]
        reached = [p for o in optimizers for group in o.param_groups for p in group["params"]]
        expect(any(p.requires_grad for p in reached), "the optimizer got no trainable parameter")

    # Checkpoints

    @check(
        "P07-save-load-exact",
        "A saved policy loads with the same settings and bit-equal tensors, and gives the same actions.",
        "Register every tensor that matters as parameter or buffer, and leave save_pretrained to the base class.",
    )
    def test_p07_save_load_exact(self, policy_config: PreTrainedConfig, tmp_path: Path) -> None:
        import torch

        policy = self._make(policy_config)
        policy.save_pretrained(tmp_path)
        again = self._loaded(policy, tmp_path)
        one, other = policy.state_dict(), again.state_dict()
        differ = [k for k in one if k not in other or not torch.equal(one[k].cpu(), other[k].cpu())]
        expect(not differ and set(one) == set(other), f"after loading these tensors differ: {', '.join(differ[:8])}")
        ignored = {"pretrained_path", "device"}
        saved, loaded = configs.as_read_again(policy.config), again.config.to_dict()
        changed = [k for k in saved if k not in ignored and saved[k] != loaded.get(k)]
        expect(not changed, f"after loading these settings differ: {', '.join(changed)}")
        batch = self.batch(policy_config, 2)
        same = self._same(self._chunk(policy, batch), self._chunk(again, batch))
        expect(same, "the loaded policy predicts other actions")

    def _loaded(self, policy: PreTrainedPolicy, folder: Path) -> PreTrainedPolicy:
        return type(policy).from_pretrained(folder)

    @check(
        "P08-files",
        "A checkpoint folder has config.json and model.safetensors, and no pickle in any form.",
        "Store tensors as safetensors and settings as JSON.",
    )
    def test_p08_files(self, policy_config: PreTrainedConfig, tmp_path: Path) -> None:
        self._make(policy_config).save_pretrained(tmp_path)
        names = {p.name for p in tmp_path.rglob("*") if p.is_file()}
        lacking = sorted({CONFIG_NAME, WEIGHTS_NAME} - names)
        expect(not lacking, f"the folder lacks {', '.join(lacking)}")
        pickles = sorted(n for n in names if n.endswith(_PICKLES))
        expect(not pickles, f"these files may be pickles: {', '.join(pickles)}")
        said = json.loads((tmp_path / CONFIG_NAME).read_text("utf-8")).get("type")
        expect(said == policy_config.type, f"config.json says the type {said!r}, expected {policy_config.type!r}")

    @check(
        "P09-evaluation-mode-after-load",
        "from_pretrained returns the policy in evaluation mode.",
        "Call eval() last in from_pretrained, or leave it to the base class.",
    )
    def test_p09_evaluation_mode_after_load(self, policy_config: PreTrainedConfig, tmp_path: Path) -> None:
        policy = self._make(policy_config)
        policy.train()
        policy.save_pretrained(tmp_path)
        expect(not self._loaded(policy, tmp_path).training, "the loaded policy is in training mode")

    @check(
        "P10-strict-loading",
        "Weights with a missing key, an unexpected key or another shape raise CheckpointError that names the key.",
        "Leave load_weights to the base class; declare renamed keys in key_remaps.",
    )
    def test_p10_strict_loading(self, policy_config: PreTrainedConfig, tmp_path: Path) -> None:
        import torch

        from ulna.core.tensors import read_tensors, write_tensors

        policy = self._make(policy_config)
        policy.save_pretrained(tmp_path)
        good = read_tensors(tmp_path / WEIGHTS_NAME)
        key = next(iter(good))
        wrong = {
            f"weights without {key}": ({k: v for k, v in good.items() if k != key}, key),
            "weights with the extra key no_such_layer.weight": (
                {**good, "no_such_layer.weight": torch.zeros(1)},
                "no_such_layer.weight",
            ),
            f"weights with another shape of {key}": ({**good, key: torch.zeros(3, 1, 4, 1, 5)}, key),
        }
        for what, (tensors, named) in wrong.items():
            write_tensors(tmp_path / WEIGHTS_NAME, tensors, {"format": "pt"})
            with refused(CheckpointError, what):
                try:
                    self._loaded(policy, tmp_path)
                except CheckpointError as error:
                    expect(named in str(error), f"the error does not name {named}: {error}")
                    raise

    @check(
        "P11-no-network-when-loading",
        "Loading a checkpoint folder opens no network connection.",
        "Load backbones' own weights only when pretrained_backbones is True.",
    )
    def test_p11_no_network_when_loading(self, policy_config: PreTrainedConfig, tmp_path: Path) -> None:
        policy = self._make(policy_config)
        policy.save_pretrained(tmp_path)
        with recorded_io() as log:
            self._loaded(policy, tmp_path)
        calls = [event for event in log.events if event.startswith("socket.")]
        expect(not calls, f"loading did {'; '.join(calls[:3])}")

    @check(
        "P12-processors-round-trip",
        "Both pipelines, saved and loaded, give the same outputs.",
        "Let get_config and state_dict of every step be complete.",
    )
    def test_p12_processors_round_trip(self, policy_config: PreTrainedConfig, tmp_path: Path) -> None:
        from ulna.core.factories import make_pre_post_processors

        if not policy_config.processors:
            raise NotExercised("its settings name no function that makes processors")
        config = self._make(policy_config).config
        pair = make_pre_post_processors(config, dataset_stats=self.stats(config))
        for pipeline in pair:
            pipeline.save_pretrained(tmp_path)
        again = make_pre_post_processors(config, tmp_path)
        batch = self.training_batch(config, 2)
        action = batch[ACTION].reshape(2, -1, *self._action_shape(config))[:, 0]
        for name, one, other, data in (("pre", pair[0], again[0], batch), ("post", pair[1], again[1], action)):
            first, second = one(batches.copied(data)), other(batches.copied(data))
            differ = batches.differences(first, second, self.tolerance)
            expect(not differ, f"the loaded {name}processor gives other values for {', '.join(differ)}")

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


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect the warnings that are logged in the block."""
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    root, handler = logging.getLogger(), Collector(logging.WARNING)
    root.addHandler(handler)
    try:
        yield lines
    finally:
        root.removeHandler(handler)
