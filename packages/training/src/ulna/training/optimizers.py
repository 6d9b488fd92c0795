# SPDX-License-Identifier: Apache-2.0
"""The optimizers: settings readable without torch. Their saved state is in `ulna.training.state_files`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from ulna.core.errors import ConfigError, ConfigProblem
from ulna.core.optim import OptimizerConfig

if TYPE_CHECKING:
    from torch.optim import Optimizer

__all__ = ["AdamConfig", "AdamWConfig", "MultiAdamConfig", "SGDConfig", "XVLAAdamWConfig"]

_FUSED_DEVICES = ("cpu", "cuda", "mps")


def _tensors(params: Iterable[Any]) -> list[Any]:
    """Return all parameters of a list of parameters or of groups."""
    found: list[Any] = []
    for entry in params:
        found += list(entry["params"]) if isinstance(entry, Mapping) else [entry]
    return found


def _fused(params: Sequence[Any]) -> bool | None:
    """Return True where one fused kernel can update all parameters, else None, which leaves the choice to torch."""
    tensors = _tensors(params)
    good = tensors and all(t.is_floating_point() and t.device.type in _FUSED_DEVICES for t in tensors)
    return True if good and len({t.device for t in tensors}) == 1 else None


def _listed(params: Any) -> list[Any]:
    """Return parameters or groups as a list that can be walked twice."""
    return [{**p, "params": list(p["params"])} if isinstance(p, Mapping) else p for p in params]


class AdamConfig(OptimizerConfig):
    """Adam (Kingma and Ba, 2015)."""

    type: str = "adam"

    betas: tuple[float, float] = Field((0.9, 0.999), description="Decay of the two running averages.")
    eps: float = Field(1e-8, gt=0, description="Added to the denominator.")

    def make(self, params: Any) -> Optimizer:
        """Make a torch Adam.

        Args:
            params: Parameters, or groups with settings of their own.

        Returns:
            The optimizer.
        """
        from torch.optim import Adam

        given = _listed(params)
        return Adam(
            given, lr=self.lr, betas=self.betas, eps=self.eps, weight_decay=self.weight_decay, fused=_fused(given)
        )


class AdamWConfig(OptimizerConfig):
    """AdamW, Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

    type: str = "adamw"

    weight_decay: float = Field(1e-2, ge=0, description="Weight decay.")
    betas: tuple[float, float] = Field((0.9, 0.999), description="Decay of the two running averages.")
    eps: float = Field(1e-8, gt=0, description="Added to the denominator.")

    def make(self, params: Any) -> Optimizer:
        """Make a torch AdamW.

        Args:
            params: Parameters, or groups with settings of their own.

        Returns:
            The optimizer.
        """
        from torch.optim import AdamW

        given = _listed(params)
        return AdamW(
            given, lr=self.lr, betas=self.betas, eps=self.eps, weight_decay=self.weight_decay, fused=_fused(given)
        )


class SGDConfig(OptimizerConfig):
    """Stochastic gradient descent, with momentum if wanted."""

    type: str = "sgd"

    momentum: float = Field(0.0, ge=0, description="Momentum.")
    dampening: float = Field(0.0, description="Dampening of the momentum.")
    nesterov: bool = Field(False, description="Nesterov's momentum.")

    def make(self, params: Any) -> Optimizer:
        """Make a torch SGD.

        Args:
            params: Parameters, or groups with settings of their own.

        Returns:
            The optimizer.
        """
        from torch.optim import SGD

        return SGD(
            _listed(params),
            lr=self.lr,
            momentum=self.momentum,
            dampening=self.dampening,
            weight_decay=self.weight_decay,
            nesterov=self.nesterov,
        )


class XVLAAdamWConfig(OptimizerConfig):
    """AdamW in three groups: the vision-language model at a tenth of the rate, the soft prompts scaled, the rest."""

    parameters_as: ClassVar[str] = "names"

    type: str = "xvla-adamw"

    lr: float = Field(1e-4, gt=0, description="Learning rate.")
    betas: tuple[float, float] = Field((0.9, 0.99), description="Decay of the two running averages.")
    eps: float = Field(1e-8, gt=0, description="Added to the denominator.")
    soft_prompt_lr_scale: float = Field(1.0, gt=0, description="Rate of the soft prompts, relative to lr.")
    soft_prompt_warmup_lr_scale: float | None = Field(
        None, gt=0, description="Rate at which the soft prompts start, relative to lr; default: their own rate."
    )

    def make(self, params: Any) -> Optimizer:
        """Make a torch AdamW with the groups `vlm`, `soft_prompts` and `other`; empty groups are left out.

        Args:
            params: Name to parameter, or (name, parameter) pairs: the groups are told apart by name.

        Returns:
            The optimizer.

        Raises:
            ConfigError: The parameters have no names, or none needs a gradient.
        """
        from torch.optim import AdamW

        groups = self._groups(_named(params, self.type))
        tensors = [t for group in groups for t in group["params"]]
        if not tensors:
            raise ConfigError([ConfigProblem("optimizer.type", self.type, "got no parameter that is to be trained")])
        return AdamW(
            groups, lr=self.lr, betas=self.betas, eps=self.eps, weight_decay=self.weight_decay, fused=_fused(tensors)
        )

    def _groups(self, named: Mapping[str, Any]) -> list[dict[str, Any]]:
        warm = self.soft_prompt_warmup_lr_scale
        prompts = self.soft_prompt_lr_scale if warm is None else warm
        sorted_out: dict[str, list[Any]] = {"vlm": [], "soft_prompts": [], "other": []}
        for name, tensor in named.items():
            if tensor.requires_grad:
                place = "soft_prompts" if "soft_prompt" in name else "vlm" if "vlm" in name else "other"
                sorted_out[place].append(tensor)
        rates = {"vlm": self.lr * 0.1, "soft_prompts": self.lr * prompts, "other": self.lr}
        decays = {"vlm": self.weight_decay * 0.1, "soft_prompts": self.weight_decay, "other": self.weight_decay}
        return [
            {"params": tensors, "lr": rates[name], "weight_decay": decays[name], "name": name}
            for name, tensors in sorted_out.items()
            if tensors
        ]


class MultiAdamConfig(OptimizerConfig):
    """One Adam for each named part of a policy: actor, critic, temperature."""

    parameters_as: ClassVar[str] = "groups"

    type: str = "multi_adam"

    optimizer_groups: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Name to settings that differ: lr, betas, eps, weight_decay."
    )

    def make(self, params: Any) -> dict[str, Optimizer]:
        """Make one torch Adam for each name.

        Args:
            params: Name to parameters.

        Returns:
            Name to optimizer.

        Raises:
            ConfigError: The parameters have no names, or a group has settings but no parameters.
        """
        from torch.optim import Adam

        named = _named(params, self.type)
        stray = [name for name in self.optimizer_groups if name not in named]
        if stray:
            expected = f"names parts of the policy, which has {', '.join(named)}"
            raise ConfigError([ConfigProblem(f"optimizer.optimizer_groups.{n}", None, expected) for n in stray])
        return {name: Adam(list(tensors), **self._options(name, list(tensors))) for name, tensors in named.items()}

    def _options(self, name: str, tensors: list[Any]) -> dict[str, Any]:
        own = self.optimizer_groups.get(name, {})
        return {
            "lr": own.get("lr", self.lr),
            "betas": tuple(own.get("betas", (0.9, 0.999))),
            "eps": own.get("eps", 1e-5),
            "weight_decay": own.get("weight_decay", self.weight_decay),
            "fused": _fused(tensors),
        }


def _named(params: Any, type: str) -> dict[str, Any]:
    """Return parameters by name, from a mapping or from pairs."""
    if isinstance(params, Mapping):
        return dict(params)
    pairs = list(params)
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        expected = "needs parameters by name; the policy's get_optim_params gives them without names"
        raise ConfigError([ConfigProblem("optimizer.type", type, expected)])
    return dict(pairs)
