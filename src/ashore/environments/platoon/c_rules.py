"""The rules of the platoon in plain Python floats, written a second time so that the two versions check each other."""

import math

import numpy as np

from ashore.environments.platoon.config import PlatoonConfig

_REACH = 100.0
"""Gap in m beyond which the speed of the car ahead no longer matters to a driver."""
_STEADY = 1e-3
"""Acceleration in m/s^2 up to which a car counts as holding its speed."""


def human_acceleration(config: PlatoonConfig, gap: float, speed: float, lead_speed: float) -> float:
    """FVD's acceleration in m/s^2 (Jiang, Wu and Zhu 2001)."""
    wanted = config.stretch * (6.75 + 7.91 * math.tanh(0.13 * gap / config.stretch - 1.57))
    wish = config.k * (wanted - speed)
    if gap < _REACH:
        wish += config.lam * (lead_speed - speed)
    return min(max(wish, -6.0), 3.0)


def equilibrium(config: PlatoonConfig, leader_speed: float) -> tuple[float, float]:
    """Speed in m/s and net gap in m at which the platoon starts behind a leader."""
    speed = min(leader_speed, 0.98 * config.stretch * (6.75 + 7.91))
    if config.starting_gap != "equilibrium":
        return speed, float(config.starting_gap)
    return speed, config.stretch * (math.atanh((speed / config.stretch - 6.75) / 7.91) + 1.57) / 0.13


def observation(moment: tuple[float, ...]) -> np.ndarray:
    """The nine scaled and clipped numbers, float32, from the nine of the paper's state in m and s."""
    lows = (0.0, -21.0, -15.0, 0.0, -21.0, -15.0, -15.0, 0.0, -15.0)
    highs = (45.0, 21.0, 15.0, 45.0, 21.0, 15.0, 60.0, 45.0, 60.0)
    scales = (15.0, 3.0, 5.0, 15.0, 3.0, 5.0, 30.0, 15.0, 30.0)
    return (np.clip(np.array(moment), lows, highs) / scales).astype(np.float32)


def reward_terms(config: PlatoonConfig, moment: tuple[float, ...]) -> dict[str, float]:
    """Named parts that sum to the reward."""
    ego_speed, ego_acceleration, ego_jerk, lead_speed, _, _, lead_gap, _, _ = moment
    excess = ego_speed - lead_speed
    closing_in = lead_gap < config.l_c and excess > 0
    return {
        "closing": -config.f_v * excess**2 if closing_in else 0.0,
        "speed": config.f_s * min(config.v_max, ego_speed) ** 2,
        "acceleration": -config.f_a * ego_acceleration**2,
        "jerk": -config.f_j * ego_jerk**2,
    }


def cost_terms(config: PlatoonConfig, moment: tuple[float, ...]) -> dict[str, float]:
    """Named parts that sum to the cost: only the worse side pays."""
    ego_speed, _, _, lead_speed, _, _, lead_gap, follow_speed, follow_gap = moment
    ahead = max(ego_speed - lead_speed, 0.0) / max(lead_gap, config.gap_floor)
    behind = max(follow_speed - ego_speed, 0.0) / max(follow_gap, config.gap_floor)
    cost = min(max(ahead, behind), config.cost_cap)
    # Two sides that both reach the cap are equally bad; the front pays, as it does in every tie.
    front = min(ahead, config.cost_cap) >= min(behind, config.cost_cap)
    return {"front": cost if front else 0.0, "rear": 0.0 if front else cost}


def episode_metrics(moments: np.ndarray, first_gap: float, period: float) -> dict[str, float]:
    """Figures of an episode from its moments [decisions, 9], one after each decision of `period` s."""
    speed, acceleration, jerk, lead_speed = moments[:, 0], moments[:, 1], moments[:, 2], moments[:, 3]
    nearest = np.minimum(moments[:, 6], moments[:, 8])
    fuel = 0.1569 + 0.0245 * speed - 7.415e-4 * speed**2 + 5.975e-5 * speed**3
    fuel += np.maximum(acceleration, 0.0) * (0.07224 + 0.09681 * speed + 1.075e-3 * speed**2)
    fuel[acceleration < -_STEADY] = 0.1
    return {
        "oscillation_ratio": float(np.std(speed) / max(np.std(lead_speed), 1e-3)),
        "jerk_squared_integral": float(period * np.sum(jerk**2)),
        "jerk_abs_integral": float(period * np.sum(np.abs(jerk))),
        "fuel_mL_per_s": float(np.mean(fuel)),
        "collisions": float(np.sum(nearest <= 0)),
        "min_gap": float(min(first_gap, np.min(nearest))),
        "mean_speed": float(np.mean(speed)),
    }
