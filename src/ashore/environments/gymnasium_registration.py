"""Tells Gymnasium the names of the worlds, as strings only: nothing is built before somebody makes one."""

import gymnasium

ENVIRONMENT_IDS = {"ashore/PointGoal2-v0": "PointGoal2", "ashore/Platoon-v0": "Platoon"}
"""Gymnasium's name of a world, and ours. A test holds this against `tasks.TASKS`."""


def register_worlds() -> None:
    """Register every world once; `import ashore` calls this."""
    for environment_id, task in ENVIRONMENT_IDS.items():
        if environment_id not in gymnasium.registry:
            gymnasium.register(
                id=environment_id,
                entry_point="ashore.environments.gymnasium_adapter:AshoreEnv",
                vector_entry_point="ashore.environments.gymnasium_vector:AshoreVectorEnv",
                kwargs={"task": task},
            )
