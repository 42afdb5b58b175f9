"""Bundles that are written once and loaded by many tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ashore_runtime import Runtime
from runtime import small_bundle
from runtime.fake_clock import FakeClock


@pytest.fixture(scope="session")
def bundle_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle.write(tmp_path_factory.mktemp("bundles") / "toy.bundle")


@pytest.fixture(scope="session")
def tight_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A budget so small that hardly any action fits it: refinement always has something to do."""
    facts = small_bundle.manifest(discounted=0.05)
    return small_bundle.write(tmp_path_factory.mktemp("bundles") / "tight.bundle", facts)


@pytest.fixture
def make_runtime(bundle_folder: Path) -> Callable[..., Runtime]:
    """A runtime on a fake clock, armed; options as for `Runtime.load`."""

    def make(folder: Path = bundle_folder, armed: bool = True, **options) -> Runtime:
        options.setdefault("clock", FakeClock())
        runtime = Runtime.load(folder, freeze=False, **options)
        if armed:
            runtime.arm()
        return runtime

    return make
