# SPDX-License-Identifier: Apache-2.0
"""The camera and its distribution keep the contracts of Ulna, with a fake driver."""

from __future__ import annotations

from typing import Any

import pytest

from ulna.cameras.opencv import OpenCVCamera, OpenCVCameraConfig
from ulna.core.cameras import Camera
from ulna.testing import CameraSuite, PackagingSuite


class TestOpenCVConformance(CameraSuite):
    """A webcam."""

    vendor_modules = ("cv2",)
    stalled_after_ms = 600

    @pytest.fixture
    def camera(self, driver: Any, monkeypatch: pytest.MonkeyPatch) -> OpenCVCamera:
        """A camera on the fake driver, which is what a camera gets that is made from its settings alone."""
        self.driver = driver
        monkeypatch.setattr("ulna.cameras.opencv.camera.default_factory", driver)
        config = OpenCVCameraConfig(index_or_path=0, width=320, height=240, fps=30, warmup_s=0)
        return OpenCVCamera(config)

    def freeze(self, camera: Camera) -> None:
        """Let the driver give no pictures."""
        self.driver.frozen = True

    def thaw(self, camera: Camera) -> None:
        """Let it give them again."""
        self.driver.frozen = False

    def unplug(self, camera: Camera) -> None:
        """Take the camera away."""
        self.driver.present = False

    def replug(self, camera: Camera) -> None:
        """Bring it back."""
        self.driver.present = True


class TestOpenCVPackaging(PackagingSuite):
    """Its distribution."""

    vendor_modules = ("cv2",)

    @pytest.fixture
    def distribution(self) -> str:
        """Its name."""
        return "ulna-cameras-opencv"
