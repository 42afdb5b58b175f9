"""The PointGoal2 scene as a MuJoCo model: a point robot among vases that it can push.

Hazards and goals have no body: they are places, not things, and live in the task's state. Constants marked [SG] are
Safety-Gymnasium's (`point.xml`, `vases.py`, `goal_level2.py`), those marked [SPiDR] are from `go_to_goal.py` and
`point.xml` of the SPiDR release.
"""

import mujoco
import numpy as np

from ashore.environments.point_goal.config import VASES, PointGoalConfig

HAZARDS = 10  # [SG]
EXTENT = 2.0  # [SG] objects are placed in the square [-2, 2]^2
ROBOT_RADIUS = 0.1  # [SG]
ARROW_CENTRE = 0.1  # [SG] the nose is a cube in front of the ball ...
ARROW_HALF = 0.05  # [SG] ... of this half size
VASE_HALF = 0.1  # [SG]
HAZARD_RADIUS = 0.2  # [SG] cost is charged within this distance of a hazard's centre
ROBOT_HEIGHT = 0.1  # [SG] the ball just touches the floor
SERVO_GAIN = 1.0  # [SG] kv of the yaw servo
FORCE_LIMIT = 0.05  # [SG] actuator force limit, before the gear
GRAVITY = 9.81
MAGNETIC_FIELD = (0.0, -0.5, 0.0)  # MuJoCo's default, which Safety-Gymnasium observes

VASE_MASS = 8e-6  # [SG] a cube of 0.2 m at density 0.001
VASE_FRICTION = VASE_MASS * GRAVITY  # mu = 1: what the floor can hold a sliding box with
# A box stands on its four corners, so the floor resists turning with mu m g times the corners' distance.
VASE_TURNING_FRICTION = VASE_FRICTION * VASE_HALF * float(np.sqrt(2.0))

ROBOT_DOFS = 3
PLANAR_DOFS = 3


def build_model(config: PointGoalConfig, vases: int = VASES) -> mujoco.MjModel:
    """Compile the scene.

    Args:
        config: vase kind, integrator, servo and solver settings.
        vases: how many vases the model holds. The batched engine keeps only the nearest few in the model.
    """
    spec = mujoco.MjSpec.from_string(_robot_xml(config))
    for index in range(vases):
        if config.vases == "planar":
            _add_planar_vase(spec, index)
        else:
            _add_free_vase(spec, index)
        for part in ("robot", "arrow"):
            spec.add_pair(
                geomname1=part,
                geomname2=f"vase{index}",
                condim=config.condim,
                # MuJoCo's order: two sliding, one torsional, two rolling coefficients. [SG] robot: 1, 0.01, 0.01.
                friction=[1.0, 1.0, 0.01, 0.01, 0.01] if part == "robot" else [1.0, 1.0, 0.005, 0.0001, 0.0001],
            )
    return spec.compile()


def _robot_xml(config: PointGoalConfig) -> str:
    limits = f'ctrllimited="true" forcelimited="true" forcerange="{-FORCE_LIMIT} {FORCE_LIMIT}"'
    if config.servo == "mujoco":
        steer = f'<velocity name="steer" joint="yaw" kv="{SERVO_GAIN}" gear="0.3" ctrlrange="-1 1" {limits}/>'
    else:
        # The task closes the yaw loop itself (see physics.py); the actuator only applies the force.
        steer = f'<motor name="steer" joint="yaw" gear="0.3" ctrlrange="{-FORCE_LIMIT} {FORCE_LIMIT}" {limits}/>'
    floor = ""
    if config.vases == "free":
        floor = '<geom name="floor" type="plane" size="5 5 0.1" condim="6" contype="2" conaffinity="2"/>'
    return f"""
<mujoco model="point_goal">
  <option timestep="{config.timestep}" integrator="{config.integrator}" cone="pyramidal" jacobian="dense"
          iterations="{config.solver_iterations}" ls_iterations="{config.line_search_iterations}"/>
  <custom>{_limits_on_contacts(config)}</custom>
  <worldbody>
    {floor}
    <body name="robot" pos="0 0 {ROBOT_HEIGHT}">
      <joint name="x" type="slide" axis="1 0 0" damping="0.01"/>
      <joint name="y" type="slide" axis="0 1 0" damping="0.01"/>
      <joint name="yaw" type="hinge" axis="0 0 1" damping="0.005"/>
      <geom name="robot" type="sphere" size="{ROBOT_RADIUS}" density="1" contype="0" conaffinity="0"/>
      <geom name="arrow" type="box" pos="{ARROW_CENTRE} 0 0" size="{ARROW_HALF} {ARROW_HALF} {ARROW_HALF}"
            density="1" contype="0" conaffinity="0"/>
      <site name="robot"/>
    </body>
  </worldbody>
  <actuator>
    <motor name="drive" site="robot" gear="0.3 0 0 0 0 0" ctrlrange="-1 1" {limits}/>
    {steer}
  </actuator>
</mujoco>
"""


def _limits_on_contacts(config: PointGoalConfig) -> str:
    if config.max_geom_pairs is None:
        return ""
    return f'<numeric name="max_geom_pairs" data="{config.max_geom_pairs}"/>'


def _add_planar_vase(spec: mujoco.MjSpec, index: int) -> None:
    body = spec.worldbody.add_body(name=f"vase{index}", pos=[0.0, 0.0, VASE_HALF])
    for name, kind, axis, friction in (
        ("x", mujoco.mjtJoint.mjJNT_SLIDE, (1, 0, 0), VASE_FRICTION),
        ("y", mujoco.mjtJoint.mjJNT_SLIDE, (0, 1, 0), VASE_FRICTION),
        ("yaw", mujoco.mjtJoint.mjJNT_HINGE, (0, 0, 1), VASE_TURNING_FRICTION),
    ):
        body.add_joint(name=f"vase{index}_{name}", type=kind, axis=axis, frictionloss=friction)
    body.add_geom(**_vase_geom(index), contype=0, conaffinity=0)


def _add_free_vase(spec: mujoco.MjSpec, index: int) -> None:
    body = spec.worldbody.add_body(name=f"vase{index}", pos=[0.0, 0.0, VASE_HALF])
    body.add_freejoint(name=f"vase{index}")
    # Bit 2 meets the floor only: vases pass through each other, as in SPiDR's release, and meet the robot by pairs.
    body.add_geom(**_vase_geom(index), contype=2, conaffinity=0, condim=6)


def _vase_geom(index: int) -> dict:
    return {
        "name": f"vase{index}",
        "type": mujoco.mjtGeom.mjGEOM_BOX,
        "size": [VASE_HALF, VASE_HALF, VASE_HALF],
        "mass": VASE_MASS,
    }
