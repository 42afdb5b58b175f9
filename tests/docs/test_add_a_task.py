import numpy as np

from docs_example import EXAMPLE


def test_the_page_builds_environments_that_run():
    # From T: one minute at full heat adds 60 * 0.05 and loses 60 * 0.001 * 1.1 * (T - 5).
    first, _ = EXAMPLE.one_room.reset(seed=0)
    observation, *_ = EXAMPLE.one_room.step(np.ones(1))
    np.testing.assert_allclose(observation, first + 3.0 - 0.066 * (first - 5.0), rtol=1e-5)
    many, _ = EXAMPLE.many_rooms.reset(seed=0)
    after, *_ = EXAMPLE.many_rooms.step(np.ones((16, 1)))
    np.testing.assert_allclose(after, many + 3.0 - 0.06 * (many - 5.0), rtol=1e-5)
