"""Manifests and calibrations with any one value replaced by any other: loaded or refused, never anything else."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ashore_runtime import Refused, bundle, strict_json
from attacks.crafted import seal
from runtime import small_bundle
from volumes import examples

odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.just([]),
    st.just({}),
    st.lists(st.integers(-2, 2), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = small_bundle.write(tmp_path_factory.mktemp("mutations") / "good")
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def places(value, path=()):
    """The way to every value inside a JSON value."""
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            found += places(inner, (*path, key))
    return found


def replaced(value, path, new):
    inside = value
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = new


def load_or_refuse(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    try:
        bundle.load(folder)
    except Refused as refusal:
        text = str(refusal)
    else:
        return
    assert "\n" not in text and text.isprintable() and text.endswith("."), text


@examples(60, 1_000)
@given(st.data())
def test_any_value_anywhere_in_the_manifest(good, tmp_path, data):
    table = json.loads(good["manifest.json"])
    path = data.draw(st.sampled_from(places(table)))
    new = data.draw(odd)
    load_or_refuse(tmp_path, seal(good, lambda table: replaced(table, path, new)))


@examples(60, 1_000)
@given(st.data())
def test_any_value_anywhere_in_the_calibration(good, tmp_path, data):
    table = json.loads(good["calibration.json"])
    replaced(table, data.draw(st.sampled_from(places(table))), data.draw(odd))
    load_or_refuse(tmp_path, seal(good | {"calibration.json": strict_json.serialise(table)}))
