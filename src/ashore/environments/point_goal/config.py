"""What can be chosen about PointGoal2, and the named choices."""

import math
from dataclasses import dataclass
from typing import Literal

VASES = 10  # Safety-Gymnasium's number


@dataclass(frozen=True)
class PointGoalConfig:
    """One PointGoal2. The defaults are the task a policy can leave: Safety-Gymnasium's observation, reward and cost."""

    vases: Literal["planar", "free"] = "planar"
    """Planar vases slide and turn on the floor; free ones are boxes that can tip, and cost about five times more."""
    observation: Literal["safety_gymnasium", "spidr"] = "safety_gymnasium"
    """60 numbers with three lidars, or 39 with vases and hazards merged into one."""
    cost_rule: Literal["safety_gymnasium", "spidr"] = "safety_gymnasium"
    """Any vase at 1e-4 m/s or more, or the norm of all vase speeds together above 0.05 m/s."""
    goal_distance: float = 0.3
    """The goal is reached at this distance from its centre, in metres."""
    goal_keepout: float = 0.305
    """Free space around a new goal, in metres."""
    throttle_scale: float = 0.05
    """Command per unit of throttle: 0.05 is where the motor's force limit begins, 1 leaves 95 % of the range flat."""
    servo: Literal["implicit", "mujoco"] = "implicit"
    """How the yaw servo is integrated: `implicit` tracks its command at every time step, `mujoco` chatters."""
    inertia_power: int = 1
    """Inertia scales with the mass scale to this power: 1 for a fixed shape, 3 in SPiDR's release."""
    integrator: Literal["implicitfast", "Euler"] = "implicitfast"
    timestep: float = 0.01
    substeps: int = 2
    """Physics steps per env step of 0.02 s."""
    action_repeat: int = 4
    """Env steps per decision."""
    decisions_per_episode: int = 250
    cost_limit: float = 25.0
    """Budget per 1000 env steps; longer episodes get proportionally more."""
    condim: int = 3
    """Contact dimension between robot and vases; 3 (sliding friction) is all that planar vases can feel."""
    active_vases: int = 4
    """Vases in the batched engine's model: the nearest ones. The others only slide to rest."""
    solver_iterations: int = 4
    line_search_iterations: int = 8
    max_geom_pairs: int | None = None
    """Cap on the geom pairs the batched engine looks at closely."""

    def __post_init__(self) -> None:
        for name in ("substeps", "action_repeat", "decisions_per_episode", "solver_iterations", "active_vases"):
            if getattr(self, name) < 1:
                raise ValueError(f"PointGoal2 needs {name} of at least 1, not {getattr(self, name)}.")
        for name in ("timestep", "goal_distance", "goal_keepout", "throttle_scale", "cost_limit"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"PointGoal2's {name} must be a positive number, not {getattr(self, name)!r}.")
        if self.active_vases > VASES:
            raise ValueError(f"PointGoal2 has {VASES} vases, so {self.active_vases} cannot be active.")


PRESETS: dict[str, PointGoalConfig] = {
    "default": PointGoalConfig(),
    "long": PointGoalConfig(decisions_per_episode=1000),
    "free": PointGoalConfig(vases="free", condim=6, active_vases=10),
    "spidr": PointGoalConfig(
        vases="free",
        observation="spidr",
        cost_rule="spidr",
        goal_distance=0.31,
        goal_keepout=0.35,
        throttle_scale=1.0,
        servo="mujoco",
        inertia_power=3,
        integrator="Euler",
        condim=6,
        active_vases=10,
        max_geom_pairs=10,
    ),
}
