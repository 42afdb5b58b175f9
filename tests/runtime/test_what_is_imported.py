"""What travels is small: NumPy and safetensors, nothing that runs what it reads, and syntax that Python 3.10 knows."""

import ast
import subprocess
import sys
from pathlib import Path

import ashore_runtime

SOURCES = sorted(Path(ashore_runtime.__file__).parent.glob("*.py"))
ALLOWED = {"numpy", "safetensors", "ashore_runtime"}
DANGEROUS_MODULES = {
    "pickle",
    "marshal",
    "shelve",
    "dill",
    "joblib",
    "cloudpickle",
    "yaml",
    "torch",
    "importlib",
    "runpy",
}
DANGEROUS_CALLS = {"eval", "exec", "compile", "__import__"}


def test_sources_import_and_call_nothing_else():
    assert SOURCES
    for source in SOURCES:
        tree = ast.parse(source.read_text(), feature_version=(3, 10))
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                top = name.split(".")[0]
                assert top in ALLOWED or top in sys.stdlib_module_names, f"{source.name} imports {name}"
                assert top not in DANGEROUS_MODULES, f"{source.name} imports {name}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in DANGEROUS_CALLS, f"{source.name} calls {node.func.id}"
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                raise AssertionError(f"{source.name} allows pickles")


def test_importing_it_loads_nothing_heavy():
    command = (
        f"import sys; sys.path.insert(0, {str(SOURCES[0].parents[1])!r}); import ashore_runtime; "
        "heavy = {'jax', 'mujoco', 'gymnasium', 'matplotlib', 'scipy', 'pickle5', 'ashore'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", command], check=True)
