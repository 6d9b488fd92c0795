# SPDX-License-Identifier: Apache-2.0
"""Target, task and pictures."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from ulna.core.errors import ConfigError
from ulna.sim.drawing import draw, encode_png
from ulna.sim.kinematics import REST_POSE, inverse_kinematics
from ulna.sim.scene import TOLERANCE_M, Scene, SceneState, target_for_seed
from ulna.sim.viewpoint import VIEWS

TARGET = target_for_seed(3)
OVER = inverse_kinematics((*TARGET, 0.05))
STATE = SceneState(seed=3, target=TARGET, joints=inverse_kinematics((TARGET[0] - 0.04, TARGET[1] + 0.05, 0.08)))


def test_targets_are_the_same_for_a_seed_and_spread_over_the_table() -> None:
    targets = [target_for_seed(seed) for seed in range(200)]
    assert targets == [target_for_seed(seed) for seed in range(200)]
    assert len(set(targets)) == 200
    reach = [math.hypot(x, y) for x, y in targets]
    assert min(reach) >= 0.17
    assert max(reach) <= 0.26
    assert min(y for _, y in targets) < -0.15
    assert max(y for _, y in targets) > 0.15


@pytest.mark.parametrize("seed", range(50))
def test_every_target_can_be_reached_and_rest_is_no_success(seed: int) -> None:
    scene = Scene(seed)
    inverse_kinematics((*scene.target, 0.05))
    scene.observe(0.0, REST_POSE)
    scene.observe(10.0, REST_POSE)
    assert not scene.success
    assert scene.distance(REST_POSE) > 2 * TOLERANCE_M


def test_success_needs_holding() -> None:
    scene = Scene(3)
    scene.observe(0.0, OVER)
    assert not scene.success
    scene.observe(0.1, OVER)
    assert not scene.success
    scene.observe(0.25, OVER)
    assert scene.success
    scene.observe(0.3, REST_POSE)
    assert not scene.success
    assert scene.ever_succeeded
    scene.reset(4)
    assert not scene.ever_succeeded


def test_passing_over_the_target_does_not_count() -> None:
    scene = Scene(3)
    for k in range(10):
        scene.observe(0.1 * k, OVER if k % 2 else REST_POSE)
    assert not scene.ever_succeeded


def test_hovering_too_high_does_not_count() -> None:
    scene = Scene(3)
    high = inverse_kinematics((*TARGET, 0.16), hand_pitch_deg=-60.0)
    scene.observe(0.0, high)
    scene.observe(1.0, high)
    assert not scene.success


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("width", "height"), [(64, 64), (160, 120), (640, 480), (48, 96)])
def test_frames_have_their_size_and_are_the_same_for_a_state(view: str, width: int, height: int) -> None:
    frame = draw(STATE, view, width, height)
    assert frame.shape == (height, width, 3)
    assert frame.dtype == np.uint8
    assert np.array_equal(frame, draw(STATE, view, width, height))


def test_frames_belong_to_the_caller() -> None:
    first = draw(STATE, "top", 64, 64)
    kept = first.copy()
    first[:] = 0
    assert np.array_equal(draw(STATE, "top", 64, 64), kept)


def red(frame: np.ndarray) -> np.ndarray:
    """Pixels of the target's colour."""
    r, g, b = (frame[:, :, k].astype(int) for k in range(3))
    return (r > 150) & (g < 90) & (b < 110)


@pytest.mark.parametrize("view", ["front", "top"])
@pytest.mark.parametrize("size", [64, 480])
@pytest.mark.parametrize("seed", range(0, 40, 5))
def test_the_target_is_seen_while_the_arm_rests(view: str, size: int, seed: int) -> None:
    frame = draw(SceneState(target=target_for_seed(seed)), view, size, size)
    assert red(frame).sum() >= 6 * (size / 64) ** 2


def test_the_picture_from_above_is_not_mirrored() -> None:
    left = draw(SceneState(target=(0.2, 0.1)), "top", 128, 128)
    right = draw(SceneState(target=(0.2, -0.1)), "top", 128, 128)
    assert np.nonzero(red(left))[1].mean() < 64 < np.nonzero(red(right))[1].mean()
    far = draw(SceneState(target=(0.26, 0.0)), "top", 128, 128)
    near = draw(SceneState(target=(0.17, 0.0)), "top", 128, 128)
    assert np.nonzero(red(far))[0].mean() < np.nonzero(red(near))[0].mean()


def test_the_wrist_camera_sees_the_target_below_the_fingers() -> None:
    over = inverse_kinematics((TARGET[0], TARGET[1], 0.09))
    frame = draw(SceneState(target=TARGET, joints=over), "wrist", 128, 128)
    assert red(frame).sum() > 100


@pytest.mark.parametrize("view", VIEWS)
def test_every_joint_shows(view: str) -> None:
    before = draw(STATE, view, 320, 240)
    for name in ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "gripper"):
        moved = {**STATE.joints, name: STATE.joints[name] + 8.0}
        assert not np.array_equal(draw(replace(STATE, joints=moved), view, 320, 240), before), name


def test_unknown_views_and_sizes_are_refused_together() -> None:
    with pytest.raises(ConfigError) as caught:
        draw(STATE, "frnt", 0, -1)
    assert len(caught.value.problems) == 3
    assert caught.value.problems[0].suggestion == "front"


def test_png_keeps_every_pixel() -> None:
    import cv2

    frame = draw(STATE, "front", 64, 48)
    decoded = cv2.imdecode(np.frombuffer(encode_png(frame), np.uint8), cv2.IMREAD_COLOR)
    assert decoded is not None
    assert np.array_equal(decoded[:, :, ::-1], frame)


def test_everything_but_drawing_works_without_opencv() -> None:
    code = (
        "import sys; sys.modules['cv2'] = None\n"
        "from ulna.sim import Simulation\n"
        "from ulna.core.errors import MissingDependencyError\n"
        "with Simulation('bare', realtime=False) as sim:\n"
        "    sim.clock.sleep_until(1.0); sim.state\n"
        "    try: sim.render()\n"
        "    except MissingDependencyError as error: assert 'ulna-sim[draw]' in str(error)\n"
        "    else: raise SystemExit(3)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
