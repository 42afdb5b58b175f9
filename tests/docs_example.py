"""The task that docs/add_a_task.md builds, taken from the page itself."""

import re
import sys
from pathlib import Path
from types import ModuleType

from ashore.environments.task_family import TaskFamily

PAGE = Path(__file__).parents[1] / "docs" / "add_a_task.md"


def built_by_the_page() -> ModuleType:
    """Run all the page's Python, in order, as one module."""
    module = ModuleType("docs_add_a_task")
    # Dataclasses look their module up by name.
    sys.modules[module.__name__] = module
    program = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    exec(compile(program, str(PAGE), "exec"), module.__dict__)
    return module


EXAMPLE = built_by_the_page()
ROOMS: TaskFamily = EXAMPLE.ROOMS
