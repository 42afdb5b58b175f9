"""The platoon as a MuJoCo model: one slide joint per car, drive and brake on the ego."""

import mujoco

CAR_LENGTH = 5.0
LEADER, LEAD, EGO, FOLLOW = 0, 1, 2, 3
"""Cars from the front: replays the cycle, drives ahead of the ego, the ego, drives behind it."""
EGO_BODY = EGO + 1
"""Body 0 is the world."""
EGO_JOINT = EGO

# Nominal numbers; `parameters.write_*` overwrite the ego's. Contacts, constraints and gravity would change nothing on
# a straight level road. `task` writes the model's step out as formulas: what changes here has to change there.
_FRAME = """
<mujoco model="platoon">
  <option timestep="{timestep!r}" integrator="Euler" gravity="0 0 0">
    <flag contact="disable" constraint="disable" eulerdamp="disable"/>
  </option>
  <default>
    <geom type="box" size="{half_length!r} 0.9 0.7" mass="1000" contype="0" conaffinity="0"/>
    <general dyntype="filterexact" dynprm="0.4" ctrllimited="true" ctrlrange="0 1"/>
  </default>
  <worldbody>{cars}
  </worldbody>
  <actuator>
    <general name="drive" joint="car_{ego}" gainprm="5000"/>
    <general name="brake" joint="car_{ego}" gainprm="-18000"/>
  </actuator>
</mujoco>
"""

_CAR = """
    <body name="car_{index}" pos="0 0 0.7">
      <joint name="car_{index}" type="slide" axis="1 0 0"{limit}/>
      <geom name="car_{index}"{paint}/>
    </body>"""

# The joint's limit on actuator force is the tyres' grip: it acts on drive and brake together.
_EGO_LIMIT = ' actuatorfrclimited="true" actuatorfrcrange="-19620 19620"'
_EGO_PAINT = ' rgba="0.10 0.55 0.60 1"'


def build(cars: int, timestep: float) -> mujoco.MjModel:
    """A platoon of `cars` vehicles; qpos are the cars' centres along the road in m, timestep in s."""
    bodies = "".join(
        _CAR.format(
            index=index,
            limit=_EGO_LIMIT if index == EGO else "",
            paint=_EGO_PAINT if index == EGO else "",
        )
        for index in range(cars)
    )
    text = _FRAME.format(timestep=timestep, half_length=CAR_LENGTH / 2, cars=bodies, ego=EGO)
    return mujoco.MjModel.from_xml_string(text)
