"""The bundle: one form, the same bytes again, and no damage that goes unnoticed."""

import dataclasses
import io
import json
import os
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ashore_runtime import Limits, Refused, Runtime, bundle, golden, schema, signature
from ashore_runtime.calibration_reading import calibration_from_json
from ashore_runtime.schema import Calibration, Refinement
from ashore_runtime.signature import TrustedKey
from runtime import small_bundle
from volumes import SOAK, examples, volume


def contents(path: Path) -> dict[str, bytes]:
    return {"": path.read_bytes()} if path.is_file() else {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("name", ["again", "again.zip"])
def test_saving_what_was_loaded_gives_the_same_bytes(tmp_path: Path, name):
    first = small_bundle.write(tmp_path / f"first_{name}")
    loaded = bundle.load(first)
    second = bundle.save_again(loaded, tmp_path / name)
    assert contents(first) == contents(second)
    assert bundle.load(second).checksum == loaded.checksum
    assert not list(tmp_path.glob("*.unfinished"))


def test_folder_and_zip_hold_the_same(bundle_folder: Path, tmp_path: Path):
    folder = bundle.load(bundle_folder)
    packed = bundle.load(bundle.save_again(folder, tmp_path / "b.zip"))
    assert packed.checksum == folder.checksum and packed.calibration == small_bundle.CALIBRATION
    assert packed.manifest == folder.manifest == small_bundle.manifest()
    for name, tensor in folder.weights.items():
        np.testing.assert_array_equal(tensor, packed.weights[name])


@examples(50, 5_000)
@given(
    st.lists(st.floats(0.0, 0.95), min_size=1, max_size=8).map(lambda etas: tuple(sorted(etas, reverse=True))),
    st.floats(0.0, 1.0),
    st.lists(st.text(max_size=40), max_size=3),
)
def test_any_calibration_survives_being_written(etas, tempering, sentences):
    counts = (0, *(2**i for i in range(len(etas) - 1)))
    calibration = Calibration(
        counts, etas, (False,) * len(etas), tempering=tempering, assumptions=tuple(sentences), tables={"epsilon": [1]}
    )
    again = calibration_from_json(json.loads(json.dumps(calibration.to_json())))
    assert again == dataclasses.replace(calibration, tables={"epsilon": [1]})
    assert again.to_json() == calibration.to_json()


STORED_FORM = "is not a bundle in its stored form; unpack it and load the folder"
# What one flipped bit of the manifest can break, in the order of the checks.
FLIPPED_MANIFEST = (
    r"manifest\.json is not JSON\.|is not a bundle: its manifest does not say so|The bundle is of schema|"
    r"manifest\.json was changed after it was written\."
)
# The same for a file's header in a zip: another form, a name that is none, or a name that belongs to nothing.
FLIPPED_HEADER = rf"{STORED_FORM}|A bundle cannot hold a file called|has no manifest\.json|lacks [a-zA-Z]+\.[a-z]+\.$"


def flipped(file: Path, place: int) -> str:
    """The sentence that a flipped bit of a whole file calls for, as a pattern."""
    name = file.name
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as packed:
            members, directory = packed.infolist(), packed.start_dir
        if place >= directory:
            return STORED_FORM
        member = max((m for m in members if m.header_offset <= place), key=lambda m: m.header_offset)
        name = member.filename
        # Thirty bytes about a file and its name, then the file.
        if place < member.header_offset + 30 + len(name):
            return FLIPPED_HEADER
    return FLIPPED_MANIFEST if name == bundle.MANIFEST else rf"^{re.escape(name)} was changed after it was written\.$"


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_every_flipped_bit_is_found(bundle_folder: Path, tmp_path: Path, form):
    generator = np.random.default_rng(0)
    loaded = bundle.load(bundle_folder)
    path = bundle.save_again(loaded, tmp_path / ("b.zip" if form == "zip" else "b"))
    files = [path] if form == "zip" else sorted(path.iterdir())
    for file in files:
        whole = file.read_bytes()
        # Half of the flips where the structure is, at both ends.
        places = np.concatenate(
            [
                generator.integers(0, min(400, len(whole)), volume(40, 500)),
                generator.integers(0, len(whole), volume(60, 1_000)),
            ]
        )
        for place in (*places, len(whole) - 1 - generator.integers(0, min(400, len(whole)))):
            sentence = flipped(file, int(place))
            bad = bytearray(whole)
            bad[place] ^= 1 << int(generator.integers(8))
            file.write_bytes(bad)
            with pytest.raises(Refused, match=sentence):
                bundle.load(path)
            file.write_bytes(whole)
    bundle.load(path)


def cut(packed: zipfile.ZipFile, length: int) -> str:
    """The sentence that a zip calls for of which so many bytes are left, as a pattern."""
    begun = [member for member in packed.infolist() if member.header_offset <= length]
    before, last = [member.filename for member in begun[:-1]], begun[-1]
    # Without the whole of its thirty bytes a file was not begun, and those before it are looked at.
    if before and length < last.header_offset + 30:
        return r"lacks weights\.safetensors\.$" if bundle.MANIFEST in before else r"has no manifest\.json\.$"
    within_name = last.header_offset + 30 <= length < last.header_offset + 30 + len(last.filename)
    return rf"{STORED_FORM}|cannot hold a file called" if within_name else STORED_FORM


def test_a_zip_cut_at_any_byte_is_refused_before_its_networks_are_asked(tmp_path: Path, monkeypatch):
    path = small_bundle.write(tmp_path / "b.zip", small_bundle.least())
    whole = path.read_bytes()
    bundle.load(path)
    monkeypatch.setattr(golden, "replay", lambda *_: pytest.fail("believed"))
    with zipfile.ZipFile(io.BytesIO(whole)) as packed:
        for length in reversed(range(len(whole))):
            os.truncate(path, length)
            with pytest.raises(Refused, match=cut(packed, length)):
                bundle.load(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(Refused, match=STORED_FORM):
        bundle.load(path)


def test_every_shortened_file_of_a_folder_is_found(tmp_path: Path):
    path = small_bundle.write(tmp_path / "b", small_bundle.least())
    for file in sorted(path.iterdir()):
        whole = file.read_bytes()
        # Sizes are compared before any tensor is read: all lengths of one go the same way, and take a quarter minute.
        stride = 7 if file.suffix == ".safetensors" and not SOAK else 1
        for length in reversed(range(0, len(whole), stride)):
            os.truncate(file, length)
            sentence = f"{file.name} has {length} bytes instead of {len(whole)}."
            if file.name == bundle.MANIFEST:
                # Without its last byte, a newline, it is still the same JSON.
                last = length == len(whole) - 1
                sentence = f"{file.name} was changed after it was written." if last else f"{file.name} is not JSON."
            with pytest.raises(Refused, match=f"^{re.escape(sentence)}$"):
                bundle.load(path)
        file.write_bytes(whole)
    bundle.load(path)


names = st.lists(st.text("abcdef_0123456789", min_size=1, max_size=12), min_size=1, max_size=5, unique=True)
edges = st.tuples(st.floats(-1e6, 0.0, width=32), st.floats(0.0, 1e6, width=32))


@examples(4, 200)
@given(names, edges, st.integers(0, 4), st.integers(1, 9), st.sampled_from(["relu", "silu"]), st.booleans(), st.text())
def test_any_bundle_is_saved_loaded_and_saved_as_the_same_bytes(
    tmp_path, fields, edge, latent, width, kind, zipped, card
):
    observation = tuple(schema.Field(name, "1", *edge) for name in fields)
    network = dataclasses.replace(
        small_bundle.NETWORK, latent=latent, hidden=(width,), critic_width=width + 1, critic_blocks=1, activation=kind
    )
    facts = small_bundle.manifest(network, observation=observation, dynamics_features=(0,))
    facts = dataclasses.replace(facts, task=dataclasses.replace(facts.task, summary=card))
    first = small_bundle.write(tmp_path / ("first.zip" if zipped else "first"), facts)
    second = bundle.save_again(bundle.load(first), tmp_path / ("second.zip" if zipped else "second"))
    assert contents(first) == contents(second)


def test_what_could_not_be_loaded_is_not_written(tmp_path: Path):
    facts = small_bundle.manifest()
    weights = small_bundle.weights(facts)
    loaded = bundle.load(small_bundle.write(tmp_path / "good"))
    for broken, message in (
        ({**weights, "actor/output/bias": weights["actor/output/bias"] * np.nan}, "not finite"),
        ({name: w for name, w in weights.items() if name != "actor/output/bias"}, "lack 'actor/output/bias'"),
        ({**weights, "actor/output/bias": np.zeros(3, np.float32)}, "has the shape"),
        ({**weights, "actor/output/bias": weights["actor/output/bias"] + 0.01}, "do not reproduce their golden"),
    ):
        with pytest.raises(Refused, match=message):
            bundle.write(tmp_path / "bad", facts, broken, loaded.golden, "")
        assert not (tmp_path / "bad").exists()
    rising = dataclasses.replace(small_bundle.CALIBRATION, eta=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5))
    with pytest.raises(Refused, match="never rise"):
        bundle.write(tmp_path / "bad", facts, weights, loaded.golden, "", rising)


def test_a_policy_without_critics_encoder_and_calibration_is_a_bundle(tmp_path: Path):
    whole = small_bundle.manifest(dataclasses.replace(small_bundle.NETWORK, latent=0))
    facts = dataclasses.replace(whole, network=dataclasses.replace(whole.network, critic_heads=0))
    kept = {n: w for n, w in small_bundle.weights(whole).items() if n.startswith(("actor", "normaliser"))}
    from ashore_runtime import golden
    from ashore_runtime.policy import PolicyNetworks

    inputs = golden.inputs(facts, kept)
    vectors = inputs | golden.outputs(facts, PolicyNetworks(facts, kept), inputs)
    loaded = bundle.load(bundle.write(tmp_path / "bare", facts, kept, vectors, "# Bare\n"))
    assert loaded.calibration is None and not loaded.networks.identifies and loaded.networks.critics is None
    again = bundle.save_again(loaded, tmp_path / "again")
    assert contents(tmp_path / "bare") == contents(again)
    with pytest.raises(Refused, match="has no critics"):
        bundle.write(tmp_path / "bad", facts, kept, vectors, "", small_bundle.CALIBRATION)
    # Manifest and weights must agree, whichever of the two leaves the critics out.
    with pytest.raises(Refused, match="lack 'critic_"):
        bundle.write(tmp_path / "bad", whole, kept, vectors, "")
    with pytest.raises(Refused, match="hold critics, and the manifest says that there are none"):
        bundle.write(tmp_path / "bad", facts, small_bundle.weights(whole), vectors, "")


def test_a_risk_level_without_critics_is_refused_and_none_is_not(tmp_path: Path):
    whole = bundle.load(small_bundle.write(tmp_path / "whole"))
    network = dataclasses.replace(whole.manifest.network, critic_heads=0)
    kept = {name: w for name, w in whole.weights.items() if not name.startswith("critic_")}
    vectors = {name: v for name, v in whole.golden.items() if not name.startswith(("output/cost", "output/reward"))}
    path = bundle.write(tmp_path / "b", dataclasses.replace(whole.manifest, network=network), kept, vectors, "")
    with pytest.raises(Refused, match="A risk level of 0.5 needs critics, and the bundle has none."):
        Runtime.load(path, eta=0.5)
    with pytest.raises(Refused, match="Refinement was asked for, and the bundle has no critics."):
        Runtime.load(path, refinement=Refinement(steps=2))
    sent = []
    for place in (path, tmp_path / "whole"):
        runtime = Runtime.load(place, eta=0.0, limits=Limits(evaluate_always=True))
        runtime.arm()
        result = runtime.act(np.zeros(4, np.float32))
        evidence = runtime.observe(np.full(4, 0.1, np.float32), 0.0, 1.0)
        health = runtime.health()
        assert result.source == "nominal" and result.k_used == 0 and evidence.used
        assert health["eta"] == 0.0 and health["mode"] == "active" and health["recent_cost"] == 1.0
        sent.append(result)
    np.testing.assert_array_equal(sent[0].action, sent[1].action)
    assert np.isnan(sent[0].q_c) and np.isfinite(sent[1].q_c)


SECRET = bytes(range(32))
KEY = TrustedKey(signature.public_key(SECRET))


def test_signatures(tmp_path: Path):
    plain = small_bundle.write(tmp_path / "plain")
    signed = small_bundle.write(tmp_path / "signed", secret_key=SECRET)
    bundle.load(signed)
    bundle.load(signed, (KEY,))
    with pytest.raises(Refused, match="is not signed"):
        bundle.load(plain, (KEY,))
    with pytest.raises(Refused, match="not trusted"):
        bundle.load(signed, (TrustedKey(signature.public_key(bytes(32))),))
    with pytest.raises(Refused, match="has expired"):
        bundle.load(signed, (dataclasses.replace(KEY, not_after=1.0),))
    (plain / "manifest.sig").write_bytes((signed / "manifest.sig").read_bytes())
    bundle.load(plain, (KEY,))  # The two are the same bundle.
    other = small_bundle.write(tmp_path / "other", seed=1)
    (other / "manifest.sig").write_bytes((signed / "manifest.sig").read_bytes())
    for trusted in ((), (KEY,)):
        with pytest.raises(Refused, match="does not belong to this manifest"):
            bundle.load(other, trusted)


@pytest.mark.parametrize("name", ["again", "again.zip"])
def test_a_signature_stays_behind_and_fits_what_is_saved_again(tmp_path: Path, name):
    signed = small_bundle.write(tmp_path / "signed", secret_key=SECRET)
    again = bundle.save_again(bundle.load(signed, (KEY,)), tmp_path / name)
    with pytest.raises(Refused, match="is not signed"):
        bundle.load(again, (KEY,))
    unsigned = small_bundle.write(tmp_path / f"unsigned_{name}")
    assert contents(again) == contents(unsigned)
    if again.is_dir():
        proof = contents(signed).pop("manifest.sig")
        assert contents(again) | {"manifest.sig": proof} == contents(signed)
        (again / "manifest.sig").write_bytes(proof)
        bundle.load(again, (KEY,))


def test_ed25519_against_rfc_8032():
    # Section 7.1, tests 1 and 3.
    for secret, public, message, expected in (
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
            "655141438e7a100b",
        ),
        (
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28d"
            "c027beceea1ec40a",
        ),
    ):
        key, text, proof = bytes.fromhex(public), bytes.fromhex(message), bytes.fromhex(expected)
        assert signature.public_key(bytes.fromhex(secret)) == key
        assert signature.sign(bytes.fromhex(secret), text) == key + proof
        assert signature.verify(key, text, proof)
        assert not signature.verify(key, text + b"!", proof)
        assert not signature.verify(key, text, proof[:-1] + bytes([proof[-1] ^ 1]))
