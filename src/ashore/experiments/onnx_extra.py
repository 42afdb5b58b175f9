"""The packages of the extra `onnx`: imported when they are asked for, and a clear error where they are missing."""

from types import ModuleType


def available() -> bool:
    """Whether the extra is installed."""
    try:
        onnx()
        onnxruntime()
    except ValueError:
        return False
    return True


def onnx() -> ModuleType:
    """What writes the files."""
    return _imported("onnx")


def onnxruntime() -> ModuleType:
    """What runs them."""
    return _imported("onnxruntime")


def _imported(name: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"'{name}' is not installed: install ashore with its extra 'onnx'.") from error
