"""The method that docs/add_a_method.md builds, taken from the page itself."""

import re
from pathlib import Path
from types import ModuleType

import jax

from ashore.learning.train_config import TrainConfig
from ashore.networks.architecture import SIZES
from toy_world import Cart

PAGE = Path(__file__).parents[2] / "docs" / "add_a_method.md"


def test_the_page_builds_a_method_that_starts():
    module = ModuleType("docs_add_a_method")
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(program, str(PAGE), "exec"), module.__dict__)
    config = TrainConfig(worlds=64, capacity=4, sizes=SIZES["small"])
    state = jax.eval_shape(lambda key: module.STRETCHED.start(Cart(), config, key), jax.random.key(0))
    assert state.parameters.mass.shape == (64,)
    # The cart's mass is 0.5 .. 2 about 1 in Train: twice as far is 0 .. 3.
    mass, _ = module.recipe(Cart(), config).ranges
    assert (mass.low, mass.high) == (0.0, 3.0)
