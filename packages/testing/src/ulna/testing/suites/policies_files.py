# SPDX-License-Identifier: Apache-2.0
"""Checks of a policy's settings and of its checkpoint files: the first half of `PolicySuite`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ulna.core.constants import ACTION, CONFIG_NAME, WEIGHTS_NAME
from ulna.core.errors import CheckpointError, ConfigError, PluginNotFoundError
from ulna.core.policy_config import PreTrainedConfig
from ulna.testing import batches, configs
from ulna.testing.checks import NotExercised, check, expect, refused
from ulna.testing.isolation import recorded_io
from ulna.testing.suites.policies_subject import PolicySubject

if TYPE_CHECKING:
    from ulna.core.policies import PreTrainedPolicy

__all__ = ["PolicyFileChecks"]

_PICKLES = (".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth")


class PolicyFileChecks(PolicySubject):
    """P01 to P12."""

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
