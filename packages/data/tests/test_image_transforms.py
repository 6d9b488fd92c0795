# SPDX-License-Identifier: Apache-2.0
"""Random changes of pictures keep shape and dtype, do what their name says, and are drawn by weight."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from ulna.core.errors import ConfigError
from ulna.data import LeRobotDataset
from ulna.data.commands import app
from ulna.data.image_transforms import ImageTransforms, RandomSubsetApply, make_transform
from ulna.data.image_transforms_config import ImageTransformConfig, ImageTransformsConfig

OWN = [
    "CoarseDropout",
    "GammaCorrection",
    "GaussianNoise",
    "GaussianPatchBrightness",
    "JPEGCompression",
    "MotionBlur",
    "PlanckianJitter",
    "RandomShadow",
]


def made(kind: str, **kwargs: Any) -> Any:
    return make_transform(ImageTransformConfig(type=kind, kwargs=kwargs))


def scenery(dtype: torch.dtype, *, window: bool = False) -> torch.Tensor:
    rows, columns = torch.meshgrid(torch.linspace(0, 1, 24), torch.linspace(0, 1, 32), indexing="ij")
    picture = torch.stack([rows, columns, ((8 * rows).floor() + (8 * columns).floor()) % 2])
    picture = torch.stack([picture, picture]) if window else picture
    return (picture * 255).round().to(torch.uint8) if dtype == torch.uint8 else picture


@pytest.mark.parametrize("kind", [*OWN, "SharpnessJitter"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("window", [False, True])
def test_shape_dtype_and_range_stay(kind: str, dtype: torch.dtype, window: bool) -> None:
    torch.manual_seed(2)
    given = scenery(dtype, window=window)
    before = given.clone()
    changed = made(kind, **({"sharpness": (0.0, 0.1)} if kind == "SharpnessJitter" else {}))(given)
    assert (changed.shape, changed.dtype) == (given.shape, given.dtype)
    assert torch.equal(given, before)
    assert not torch.equal(changed, given)
    if dtype == torch.float32:
        assert 0 <= float(changed.min()) <= float(changed.max()) <= 1
    if window:
        alike = torch.equal(changed[0], changed[1])
        assert alike or kind == "GaussianNoise"


@pytest.mark.parametrize("kind", OWN)
def test_integers_and_floats_are_changed_alike(kind: str) -> None:
    torch.manual_seed(3)
    levels = made(kind)(scenery(torch.uint8)).float() / 255
    torch.manual_seed(3)
    values = made(kind)(scenery(torch.uint8).float() / 255)
    assert float((levels - values).abs().max()) < 1.01 / 255


def test_each_does_what_its_name_says() -> None:
    torch.manual_seed(1)
    grey = torch.full((3, 40, 60), 128, dtype=torch.uint8)
    assert int(made("GammaCorrection", gamma=(2.0, 2.0))(grey)[0, 0, 0]) == round(255 * (128 / 255) ** 2)
    noise = made("GaussianNoise", std=10)(grey).float()
    assert abs(float(noise.std()) - 10) < 0.5
    assert abs(float(noise.mean()) - 128) < 0.5
    holes = made("CoarseDropout", max_holes=1, max_height_frac=0.5, max_width_frac=0.5, fill_value=1.0)(grey)
    assert set(holes.unique().tolist()) == {128, 255}
    shadow = made("RandomShadow", opacity=0.5)(grey)
    assert int(shadow.min()) == 64
    assert int(shadow.max()) == 128
    daylight = made("PlanckianJitter", temperature=6500)(grey)
    assert torch.equal(daylight, grey)
    red, green, blue = (int(c.float().mean()) for c in made("PlanckianJitter", temperature=3000)(grey))
    assert red > green == 128 > blue
    edge = torch.zeros(3, 21, 21, dtype=torch.uint8)
    edge[:, 10, 10] = 255
    blurred = made("MotionBlur", kernel_size=5)(edge)
    assert 1 < int((blurred[0] > 0).sum()) <= 7
    assert abs(int(blurred[0].sum()) - 255) <= 5
    assert torch.equal(made("MotionBlur", kernel_size=1)(edge), edge)
    assert torch.equal(made("GaussianPatchBrightness", num_patches=0)(grey), grey)
    assert not torch.equal(made("JPEGCompression", quality=10)(scenery(torch.uint8)), scenery(torch.uint8))


def test_subset_is_drawn_by_weight_and_applied_in_order() -> None:
    torch.manual_seed(0)
    seen: list[str] = []
    steps = [lambda p, name=name: seen.append(name) or p for name in "abcd"]
    apply = RandomSubsetApply(steps, [1.0, 3.0, 0.0, 1.0], n_subset=2)
    counts: Counter[str] = Counter()
    for _ in range(400):
        seen.clear()
        apply(torch.zeros(3, 2, 2))
        assert seen == sorted(set(seen))
        assert len(seen) == 2
        counts.update(seen)
    assert counts["c"] == 0
    assert counts["b"] > counts["a"] > 0
    shuffled = RandomSubsetApply(steps, n_subset=4, random_order=True)
    orders = set()
    for _ in range(30):
        seen.clear()
        shuffled(torch.zeros(3, 2, 2))
        orders.add(tuple(seen))
    assert len(orders) > 5


@pytest.mark.parametrize(
    "options", [{"p": [1.0]}, {"n_subset": 3}, {"p": [1.0, -1.0]}, {"p": [0.0, 1.0], "n_subset": 2}]
)
def test_subsets_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"p must|n_subset must"):
        RandomSubsetApply([lambda p: p, lambda p: p], **options)


def test_defaults_are_the_usual_six() -> None:
    config = ImageTransformsConfig()
    assert list(config.tfs) == ["brightness", "contrast", "saturation", "hue", "sharpness", "affine"]
    assert (config.enable, config.max_num_transforms, config.random_order) == (False, 3, False)
    picture = scenery(torch.uint8)
    assert torch.equal(ImageTransforms(config)(picture), picture)
    torch.manual_seed(0)
    enabled = ImageTransforms(config.model_copy(update={"enable": True}))
    assert any(not torch.equal(enabled(picture), picture) for _ in range(5))


def test_every_wrong_transform_is_named_at_once() -> None:
    wrong = ImageTransformsConfig.build(
        {
            "tfs": {
                "a": {"type": "ColourJitter"},
                "b": {"type": "MotionBlur", "kwargs": {"size": 3}},
                "c": {"type": "os"},
            }
        }
    )
    with pytest.raises(ConfigError) as caught:
        ImageTransforms(wrong)
    text = str(caught.value)
    for part in ("3 problems", "tfs.a.type", "tfs.b.kwargs", "tfs.c.type"):
        assert part in text
    with pytest.raises(ConfigError, match=r"did you mean 'ColorJitter'"):
        make_transform(ImageTransformConfig(type="ColourJitter"))


def test_only_colour_pictures_of_a_dataset_are_changed(tmp_path: Path, scene: Any) -> None:
    scene("image").record(tmp_path / "set", [3])
    black = LeRobotDataset("lab/scene", tmp_path / "set", image_transforms=torch.zeros_like, return_uint8=True)
    item = black[1]
    assert int(item["observation.images.cam"].sum()) == 0
    assert float(item["observation.state"].abs().sum()) > 0


def test_command_draws_a_sheet(tmp_path: Path, scene: Any) -> None:
    scene("image").record(tmp_path / "set", [3])
    output = tmp_path / "sheet.png"
    arguments = ["transforms", str(tmp_path / "set"), "--examples", "2", "--output", str(output)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "brightness, contrast, saturation, hue, sharpness, affine, all together" in done.stdout
    with Image.open(output) as sheet:
        first = np.asarray(sheet)
    assert first.shape[1] == 3 * 246 + 6
    CliRunner().invoke(app, arguments)
    with Image.open(output) as sheet:
        assert np.array_equal(first, np.asarray(sheet))
    wrong = CliRunner().invoke(app, [*arguments, "--camera", "observation.images.can"])
    assert wrong.exit_code == 1
    assert "Did you mean 'observation.images.cam'?" in wrong.stderr
