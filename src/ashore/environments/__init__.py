"""Simulated worlds: a contract (`base`), declared randomisation, batches (`rollout`, `branching`), and the worlds.

Nothing is re-exported here, so that naming one module does not start JAX and MuJoCo for all of them; `tasks` is the
registry to begin with.
"""
