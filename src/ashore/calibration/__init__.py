"""Calibration: how careful a policy must be after N transitions, measured in simulation before it is deployed."""

from ashore.calibration.calibrate import Calibration
from ashore.calibration.careful_policy import Agent, CarefulPolicy, Decision
from ashore.calibration.config import CalibrationConfig, Subject
from ashore.calibration.frontier import Curve, FrontierConfig
from ashore.calibration.ledger import Ledger, Paused
from ashore.calibration.refinement import RefinementConfig

__all__ = [
    "Agent",
    "Calibration",
    "CalibrationConfig",
    "CarefulPolicy",
    "Curve",
    "Decision",
    "FrontierConfig",
    "Ledger",
    "Paused",
    "RefinementConfig",
    "Subject",
]
