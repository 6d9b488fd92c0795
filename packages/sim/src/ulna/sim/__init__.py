# SPDX-License-Identifier: Apache-2.0
"""Robots without hardware: simulated servo buses, a simulated SO-101 arm, a table scene with cameras.

Names resolve on first use, so importing the package loads neither NumPy nor OpenCV.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulna.core.lazy import lazy_names

if TYPE_CHECKING:
    from ulna.sim.__about__ import __version__
    from ulna.sim.arm import Hand, SimArm
    from ulna.sim.bus import SimFeetechBus, WireRecord
    from ulna.sim.clock import VirtualClock
    from ulna.sim.expert import ScriptedExpert
    from ulna.sim.faults import BusCounters, FaultPlan
    from ulna.sim.feetech import SimFeetechServo
    from ulna.sim.scene import Scene, SceneState
    from ulna.sim.sharing import WorldReader
    from ulna.sim.simulation import Simulation

__all__ = [
    "BusCounters",
    "FaultPlan",
    "Hand",
    "Scene",
    "SceneState",
    "ScriptedExpert",
    "SimArm",
    "SimFeetechBus",
    "SimFeetechServo",
    "Simulation",
    "VirtualClock",
    "WireRecord",
    "WorldReader",
    "__version__",
]

_WHERE = {
    "BusCounters": "faults",
    "FaultPlan": "faults",
    "Hand": "arm",
    "Scene": "scene",
    "SceneState": "scene",
    "ScriptedExpert": "expert",
    "SimArm": "arm",
    "SimFeetechBus": "bus",
    "SimFeetechServo": "feetech",
    "Simulation": "simulation",
    "VirtualClock": "clock",
    "WireRecord": "bus",
    "WorldReader": "sharing",
    "__version__": "__about__",
}

__getattr__, __dir__ = lazy_names(globals(), _WHERE)
