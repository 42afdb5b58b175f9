"""What travels is small: NumPy and safetensors, nothing that runs what it reads, and syntax that Python 3.10 knows."""

import ast
import subprocess
import sys
import tomllib
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
# Of the standard library, what Python 3.10 lacks. Pyright holds the folder to 3.10 too, but only to its modules.
NEWER_MODULES = {"tomllib"}
NEWER_NAMES = {
    "StrEnum", "ReprEnum", "EnumCheck", "FlagBoundary", "global_enum",
    "Self", "Never", "LiteralString", "NotRequired", "Required", "Unpack", "TypeVarTuple", "override", "assert_never",
    "assert_type", "reveal_type", "dataclass_transform", "TypeAliasType", "Buffer",
    "UTC", "batched", "ExceptionGroup", "BaseExceptionGroup", "add_note", "TaskGroup", "Runner", "file_digest", "chdir",
    "getLevelNamesMapping", "NOFLAG", "exp2", "cbrt", "sumprod", "is_junction",
}  # fmt: skip


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
                assert top not in DANGEROUS_MODULES | NEWER_MODULES, f"{source.name} imports {name}"
            used = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
            used |= {node.attr} if isinstance(node, ast.Attribute) else set()
            used |= {node.id} if isinstance(node, ast.Name) else set()
            assert not used & NEWER_NAMES, f"{source.name} uses {used}, which Python 3.10 does not have"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in DANGEROUS_CALLS, f"{source.name} calls {node.func.id}"
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                raise AssertionError(f"{source.name} allows pickles")


def test_it_can_be_installed_alone():
    place = SOURCES[0].parents[2] / "packaging" / "ashore-runtime"
    content = tomllib.loads((place / "pyproject.toml").read_text())
    project = content["project"]
    assert project["requires-python"] == ">=3.10"
    assert {wish.split(">")[0] for wish in project["dependencies"]} == ALLOWED - {"ashore_runtime"}
    packed = content["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    (folder,) = (place / source for source, target in packed.items() if target == "ashore_runtime")
    assert folder.resolve() == SOURCES[0].parent.resolve()
    version = place / content["tool"]["hatch"]["version"]["path"]
    assert version.resolve() == Path(ashore_runtime.__file__).resolve()


def test_the_whole_package_runs_nothing_that_it_reads():
    # importlib is how the command line finds its verbs, by names that are written in it.
    forbidden = DANGEROUS_MODULES - {"importlib"}
    sources = sorted((SOURCES[0].parents[1] / "ashore").rglob("*.py"))
    assert sources
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & forbidden, f"{source} imports {names}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in DANGEROUS_CALLS, f"{source} calls {node.func.id}"
            assert not (isinstance(node, ast.keyword) and node.arg == "allow_pickle"), f"{source} allows pickles"


def test_importing_it_loads_nothing_heavy():
    command = (
        f"import sys; sys.path.insert(0, {str(SOURCES[0].parents[1])!r}); import ashore_runtime; "
        "heavy = {'jax', 'mujoco', 'gymnasium', 'matplotlib', 'scipy', 'pickle5', 'ashore'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", command], check=True)
