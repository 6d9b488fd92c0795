# SPDX-License-Identifier: Apache-2.0
"""Random changes of colour pictures for training: a weighted choice among torchvision's transforms and those below.

Every transform takes pictures (..., 3, H, W), uint8 or float in [0, 1], and returns the same shape and dtype; pictures
of one window are changed alike. Random numbers come from torch's global generator, which its loaders seed by worker.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from ulna.core.errors import ConfigError, ConfigProblem, nearest
from ulna.data.image_transforms_config import ImageTransformConfig, ImageTransformsConfig

__all__ = [
    "CoarseDropout",
    "GammaCorrection",
    "GaussianNoise",
    "GaussianPatchBrightness",
    "ImageTransforms",
    "JPEGCompression",
    "MotionBlur",
    "PlanckianJitter",
    "RandomShadow",
    "RandomSubsetApply",
    "SharpnessJitter",
    "Transform",
    "make_transform",
]

Span = tuple[float, float]
Transform = Callable[[Any], Any]


def _span(name: str, value: float | Sequence[float], least: float, *, around: float | None = None) -> Span:
    """Check a range; a single number is a fixed value, or the width of a range around `around`."""
    if isinstance(value, int | float):
        low, high = (value, value) if around is None else (max(around - value, least), around + value)
    else:
        numbers = [float(v) for v in value]
        if len(numbers) != 2:
            raise ValueError(f"{name} must be a number or two numbers (least, most), got {value!r}.")
        low, high = numbers
    if not (math.isfinite(low) and math.isfinite(high) and least <= low <= high):
        raise ValueError(f"{name} must lie in {least} <= least <= most, got {value!r}.")
    return float(low), float(high)


def _draw(span: Span) -> float:
    return span[0] + (span[1] - span[0]) * float(torch.rand(()))


def _draw_int(span: Span) -> int:
    return int(torch.randint(int(span[0]), int(span[1]) + 1, ()))


def _levels(pictures: torch.Tensor) -> float:
    """Return the value of white."""
    return 255.0 if pictures.dtype == torch.uint8 else 1.0


def _in_floats(pictures: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Apply a change that computes with floats in [0, 1]; round and cut off as the given dtype needs."""
    white = _levels(pictures)
    changed = change(pictures.to(torch.float32) / white).clamp_(0, 1).mul_(white)
    return changed.round_().to(torch.uint8) if pictures.dtype == torch.uint8 else changed.to(pictures.dtype)


class SharpnessJitter(v2.Transform):  # type: ignore[misc,unused-ignore]
    """Change the sharpness by a random factor: 0 blurs, 1 keeps, 2 sharpens.

    Args:
        sharpness: Range of the factor; a single number is the width of the range around 1.
    """

    def __init__(self, sharpness: float | Sequence[float]) -> None:
        super().__init__()
        self.sharpness = _span("sharpness", sharpness, 0.0, around=1.0)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return changed pictures (..., 3, H, W)."""
        return torch.as_tensor(functional.adjust_sharpness(pictures, _draw(self.sharpness)))


class GammaCorrection(v2.Transform):  # type: ignore[misc,unused-ignore]
    """Raise the values to a random power: below 1 brightens the dark parts, above 1 darkens them.

    Args:
        gamma: Range of the exponent, drawn evenly on a logarithmic scale; a single number is fixed.
    """

    def __init__(self, gamma: float | Sequence[float] = (0.5, 2.0)) -> None:
        super().__init__()
        self.gamma = _span("gamma", gamma, 1e-3)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return changed pictures (..., 3, H, W)."""
        exponent = math.exp(_draw((math.log(self.gamma[0]), math.log(self.gamma[1]))))
        return _in_floats(pictures, lambda p: p.pow_(exponent))


class GaussianNoise(v2.Transform):  # type: ignore[misc,unused-ignore]
    """Add noise to every pixel and channel.

    Args:
        std: Range of the standard deviation, in levels of 255.
    """

    def __init__(self, std: float | Sequence[float] = (5.0, 25.0)) -> None:
        super().__init__()
        self.std = _span("std", std, 0.0)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return changed pictures (..., 3, H, W)."""
        std = _draw(self.std) / 255
        return _in_floats(pictures, lambda p: p.add_(torch.randn_like(p), alpha=std))


class MotionBlur(v2.Transform):  # type: ignore[misc,unused-ignore]
    """Blur along a line of random direction, as a moving camera does.

    Args:
        kernel_size: Range of the line's length in pixels; even numbers are raised by one.
    """

    def __init__(self, kernel_size: int | Sequence[int] = (3, 11)) -> None:
        super().__init__()
        self.kernel_size = _span("kernel_size", kernel_size, 1.0)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return changed pictures (..., 3, H, W)."""
        size = _draw_int(self.kernel_size) | 1
        kernel = _line(size, _draw((0.0, math.pi)))

        def blur(values: torch.Tensor) -> torch.Tensor:
            height, width = values.shape[-2:]
            flat = values.reshape(-1, 1, height, width)
            half = min(size // 2, height - 1, width - 1)
            inner = kernel[size // 2 - half : size // 2 + half + 1, size // 2 - half : size // 2 + half + 1]
            padded = torch.nn.functional.pad(flat, [half] * 4, mode="reflect")
            return torch.nn.functional.conv2d(padded, (inner / inner.sum())[None, None]).reshape(values.shape)

        return _in_floats(pictures, blur)


def _line(size: int, angle: float) -> torch.Tensor:
    """Return a kernel (size, size) with a line through its middle."""
    kernel = torch.zeros(size, size)
    steps = torch.linspace(-(size // 2), size // 2, 4 * size)
    rows = (steps * math.sin(angle)).round().long() + size // 2
    columns = (steps * math.cos(angle)).round().long() + size // 2
    kernel[rows, columns] = 1.0
    return kernel


class JPEGCompression(v2.Transform):  # type: ignore[misc,unused-ignore]
    """Compress and decompress as JPEG.

    Args:
        quality: Range of the quality, 1 to 100.
    """

    def __init__(self, quality: int | Sequence[int] = (15, 75)) -> None:
        super().__init__()
        low, high = _span("quality", quality, 1.0)
        if high > 100:
            raise ValueError(f"quality must be at most 100, got {quality!r}.")
        self.quality = (low, high)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return changed pictures (..., 3, H, W)."""
        quality, white = _draw_int(self.quality), _levels(pictures)
        levels = pictures if pictures.dtype == torch.uint8 else (pictures * 255).round().to(torch.uint8)
        flat = levels.reshape(-1, *levels.shape[-3:])
        changed = torch.stack([_through_jpeg(picture, quality) for picture in flat]).reshape(pictures.shape)
        return changed if white == 255 else changed.to(pictures.dtype) / 255


def _through_jpeg(picture: torch.Tensor, quality: int) -> torch.Tensor:
    """Return a picture uint8 (3, H, W) as JPEG leaves it."""
    coded = io.BytesIO()
    Image.fromarray(picture.permute(1, 2, 0).contiguous().numpy()).save(coded, format="jpeg", quality=quality)
    with Image.open(coded) as decoded:
        return torch.from_numpy(np.array(decoded)).permute(2, 0, 1).contiguous()


class GaussianPatchBrightness(v2.Transform):  # type: ignore[misc,unused-ignore]
    """Brighten or darken some soft spots, as lamps and shadows of things out of sight do.

    Args:
        num_patches: Range of the number of spots.
        sigma_range: Range of their width, as a share of the picture's shorter side.
        factor_range: Range of the factor in their middle.
    """

    def __init__(
        self,
        num_patches: int | Sequence[int] = (1, 4),
        sigma_range: Sequence[float] = (0.05, 0.25),
        factor_range: Sequence[float] = (0.4, 1.6),
    ) -> None:
        super().__init__()
        self.num_patches = _span("num_patches", num_patches, 0.0)
        self.sigma_range = _span("sigma_range", sigma_range, 1e-3)
        self.factor_range = _span("factor_range", factor_range, 0.0)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return changed pictures (..., 3, H, W)."""
        height, width = pictures.shape[-2:]
        rows, columns = torch.arange(height)[:, None], torch.arange(width)[None, :]
        gain = torch.ones(height, width)
        for _ in range(_draw_int(self.num_patches)):
            row, column = _draw((0, height)), _draw((0, width))
            sigma = _draw(self.sigma_range) * min(height, width)
            spot = torch.exp(-((rows - row) ** 2 + (columns - column) ** 2) / (2 * sigma**2))
            gain *= 1 + (_draw(self.factor_range) - 1) * spot
        return _in_floats(pictures, lambda p: p.mul_(gain))


class RandomShadow(v2.Transform):  # type: ignore[misc,unused-ignore]
    """Darken one side of a random line through the picture.

    Args:
        opacity: Range of the share of light that is taken away, 0 to 1.
    """

    def __init__(self, opacity: float | Sequence[float] = (0.3, 0.6)) -> None:
        super().__init__()
        self.opacity = _span("opacity", opacity, 0.0)
        if self.opacity[1] > 1:
            raise ValueError(f"opacity must be at most 1, got {opacity!r}.")

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return changed pictures (..., 3, H, W)."""
        height, width = pictures.shape[-2:]
        angle, row, column = _draw((0, 2 * math.pi)), _draw((0, height)), _draw((0, width))
        rows, columns = torch.arange(height)[:, None], torch.arange(width)[None, :]
        side = (rows - row) * math.sin(angle) + (columns - column) * math.cos(angle)
        gain = 1 - _draw(self.opacity) * (side / 2 + 0.5).clamp(0, 1)  # an edge of two pixels
        return _in_floats(pictures, lambda p: p.mul_(gain))


class CoarseDropout(v2.Transform):  # type: ignore[misc,unused-ignore]
    """Cover some rectangles.

    Args:
        max_holes: Most rectangles; there is at least one.
        max_height_frac: Most height of one, as a share of the picture's.
        max_width_frac: Most width of one, as a share of the picture's.
        fill_value: What they are covered with, 0 (black) to 1 (white).
    """

    def __init__(
        self,
        max_holes: int = 8,
        max_height_frac: float = 0.07,
        max_width_frac: float = 0.07,
        fill_value: float = 0.0,
    ) -> None:
        super().__init__()
        self.max_holes = int(_span("max_holes", max_holes, 1.0)[0])
        self.max_height_frac = _span("max_height_frac", max_height_frac, 0.0)[0]
        self.max_width_frac = _span("max_width_frac", max_width_frac, 0.0)[0]
        self.fill_value = _span("fill_value", fill_value, 0.0)[0]
        for name in ("max_height_frac", "max_width_frac", "fill_value"):
            if getattr(self, name) > 1:
                raise ValueError(f"{name} must be at most 1, got {getattr(self, name)!r}.")

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return changed pictures (..., 3, H, W)."""
        height, width = pictures.shape[-2:]
        changed = pictures.clone()
        fill = self.fill_value * _levels(pictures)
        for _ in range(_draw_int((1, self.max_holes))):
            tall = _draw_int((1, max(int(self.max_height_frac * height), 1)))
            wide = _draw_int((1, max(int(self.max_width_frac * width), 1)))
            row, column = _draw_int((0, height - tall)), _draw_int((0, width - wide))
            changed[..., row : row + tall, column : column + wide] = fill
        return changed


_WAVELENGTHS_M: Final = (610e-9, 549e-9, 468e-9)
_SECOND_RADIATION_CONSTANT: Final = 1.438777e-2
_DAYLIGHT_K: Final = 6500.0


class PlanckianJitter(v2.Transform):  # type: ignore[misc,unused-ignore]
    """Change the colour of the light to that of a black body of random temperature, green kept.

    Args:
        temperature: Range in kelvin; 6500 K changes nothing, less is redder, more is bluer.
    """

    def __init__(self, temperature: float | Sequence[float] = (3000, 15000)) -> None:
        super().__init__()
        self.temperature = _span("temperature", temperature, 1000.0)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return changed pictures (..., 3, H, W)."""
        temperature = _draw(self.temperature)
        light = [_light(wavelength, temperature) for wavelength in _WAVELENGTHS_M]
        gain = torch.tensor(light).div_(light[1])[:, None, None]
        return _in_floats(pictures, lambda p: p.mul_(gain))


def _light(wavelength_m: float, temperature_k: float) -> float:
    """Return the light of a black body at a wavelength, relative to daylight (Planck's law)."""
    constant = _SECOND_RADIATION_CONSTANT / wavelength_m
    return math.expm1(constant / _DAYLIGHT_K) / math.expm1(constant / temperature_k)


class RandomSubsetApply(v2.Transform):  # type: ignore[misc,unused-ignore]
    """Apply some of several transforms, drawn without repetition by weight.

    Args:
        transforms: The transforms.
        p: Their weights; all alike when not given. One of weight 0 is never drawn.
        n_subset: How many are drawn; all when not given.
        random_order: Whether they are applied in the order drawn, else in the order given.

    Raises:
        ValueError: Weights that do not fit, or more to draw than can be.
    """

    def __init__(
        self,
        transforms: Sequence[Transform],
        p: list[float] | None = None,
        n_subset: int | None = None,
        random_order: bool = False,
    ) -> None:
        super().__init__()
        weights = [1.0] * len(transforms) if p is None else [float(weight) for weight in p]
        if len(weights) != len(transforms) or any(not weight >= 0 for weight in weights):
            raise ValueError(f"p must have {len(transforms)} weights of 0 or more, got {p!r}.")
        possible = sum(weight > 0 for weight in weights)
        wanted = possible if n_subset is None else n_subset
        if not 0 <= wanted <= possible:
            raise ValueError(f"n_subset must be 0 to {possible} (transforms with a weight above 0), got {n_subset!r}.")
        self.transforms = list(transforms)
        self.p, self.n_subset, self.random_order = weights, wanted, random_order

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return changed pictures (..., 3, H, W)."""
        if self.n_subset == 0:
            return pictures
        drawn = torch.multinomial(torch.tensor(self.p), self.n_subset).tolist()
        for number in drawn if self.random_order else sorted(drawn):
            pictures = self.transforms[number](pictures)
        return pictures


_OWN: Final[dict[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        CoarseDropout,
        GammaCorrection,
        GaussianNoise,
        GaussianPatchBrightness,
        JPEGCompression,
        MotionBlur,
        PlanckianJitter,
        RandomShadow,
        SharpnessJitter,
    )
}


def make_transform(config: ImageTransformConfig) -> Transform:
    """Make one transform.

    Args:
        config: Its settings.

    Returns:
        The transform.

    Raises:
        ConfigError: There is no such class, or it does not take the arguments.
    """
    kind = _OWN.get(config.type) or getattr(v2, config.type, None)
    if not (isinstance(kind, type) and issubclass(kind, v2.Transform)):
        known = [*_OWN, *(n for n in dir(v2) if isinstance(getattr(v2, n), type) and n != "Transform")]
        expected = f"expected is a class of torchvision.transforms.v2, or {', '.join(_OWN)}"
        raise ConfigError([ConfigProblem("type", config.type, expected, nearest(config.type, known))])
    try:
        made: Transform = kind(**config.kwargs)
    except (TypeError, ValueError) as error:
        raise ConfigError([ConfigProblem("kwargs", config.kwargs, f"{config.type}: {error}")]) from error
    return made


class ImageTransforms(v2.Transform):  # type: ignore[misc,unused-ignore]
    """The random changes that some settings ask for: at most `max_num_transforms` of them for each picture.

    Args:
        config: The settings.

    Raises:
        ConfigError: A transform cannot be made; it is named.
    """

    def __init__(self, config: ImageTransformsConfig) -> None:
        super().__init__()
        self.config = config
        self.transforms: dict[str, Transform] = {}
        problems = []
        for name, wanted in config.tfs.items():
            if wanted.weight > 0:
                try:
                    self.transforms[name] = make_transform(wanted)
                except ConfigError as error:
                    problems += [replace(p, path=f"tfs.{name}.{p.path}") for p in error.problems]
        if problems:
            raise ConfigError(problems, title="image_transforms")
        weights = [config.tfs[name].weight for name in self.transforms]
        count = min(len(self.transforms), config.max_num_transforms) if config.enable else 0
        self._subset = RandomSubsetApply(list(self.transforms.values()), weights, count, config.random_order)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return changed pictures (..., 3, H, W)."""
        return torch.as_tensor(self._subset(pictures))
