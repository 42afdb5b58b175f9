"""The bundle: a trained policy as it travels, and everything that is checked before it is believed.

    manifest.json         what it is: schema, size and SHA-256 of every other file, shapes, bounds, budget, a checksum
    weights.safetensors   networks and normalisers, float32
    golden.safetensors    inputs with known outputs
    calibration.json      the risk schedule (absent: the policy runs at eta = 0)
    CARD.md               the same for people
    actor.onnx, refine_step.onnx, manifest.sig    optional

A bundle is a flat folder or one stored zip. It has one form only: JSON in `strict_json.serialise`'s layout, the zip in
`container.write_zip`'s. Saving what was loaded gives the same bytes, and every flipped bit is found.
"""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ashore_runtime import container, golden, signature, strict_json, tensors
from ashore_runtime.calibration_reading import calibration_from_json
from ashore_runtime.manifest_reading import manifest_from_json
from ashore_runtime.policy import PolicyNetworks
from ashore_runtime.refusal import Refused
from ashore_runtime.schema import SCHEMA, Calibration, Manifest, Refinement
from ashore_runtime.signature import TrustedKey

KIND = "ashore-bundle"
MANIFEST, WEIGHTS, GOLDEN, CALIBRATION = (
    "manifest.json",
    "weights.safetensors",
    "golden.safetensors",
    "calibration.json",
)
CARD, SIGNATURE = "CARD.md", "manifest.sig"
REQUIRED = (WEIGHTS, GOLDEN, CARD)
OPTIONAL = (CALIBRATION, "actor.onnx", "refine_step.onnx")
_ADDED = ("kind", "schema", "files", "checksum")
"""Entries of manifest.json that the writer adds to what `Manifest` says."""


@dataclass(frozen=True)
class Bundle:
    """A bundle that has passed every check."""

    path: Path
    manifest: Manifest
    weights: Mapping[str, np.ndarray]
    calibration: Calibration | None
    golden: Mapping[str, np.ndarray]
    card: str
    checksum: str
    """Names the bundle: any other manifest, weight or table has another checksum."""
    networks: PolicyNetworks
    files: Mapping[str, bytes]
    """The optional files that nothing here reads (ONNX), by name."""


def write(
    path: Path | str,
    manifest: Manifest,
    weights: Mapping[str, np.ndarray],
    golden_vectors: Mapping[str, np.ndarray],
    card: str,
    calibration: Calibration | None = None,
    *,
    extra: Mapping[str, bytes] | None = None,
    secret_key: bytes | None = None,
) -> Path:
    """Write a bundle: a zip if the path ends in `.zip`, otherwise a folder. What could not be loaded is not written.

    Args:
        path: where; a bundle that stood there is replaced.
        manifest: the facts.
        weights: named tensors of actor, critics, encoder and dynamics head, and `normaliser/<kind>/mean` and
            `.../variance` for the kinds observation, change, reward and cost. Sample counts are left out.
        golden_vectors: `golden.inputs` together with the outputs of the networks that were trained.
        card: what a person should know, as Markdown.
        calibration: the risk schedule; without one the policy runs at eta = 0.
        extra: optional ONNX files by name.
        secret_key: 32 bytes that sign the manifest; without it there is no signature.
    """
    path = Path(path)
    kept = {name: np.asarray(tensor) for name, tensor in weights.items() if not name.endswith("/count")}
    files: dict[str, bytes] = {
        WEIGHTS: tensors.serialise(kept),
        GOLDEN: tensors.serialise(golden_vectors),
        CARD: card.encode(),
        **(extra or {}),
    }
    if calibration is not None:
        # Through the reader and back, so that 1 and 1.0 cannot make two texts of the same numbers.
        calibration = calibration_from_json(calibration.to_json())
        files[CALIBRATION] = strict_json.serialise(calibration.to_json())
    table = manifest_from_json(manifest.to_json()).to_json()
    listing = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    table |= {"kind": KIND, "schema": SCHEMA, "files": listing}
    table["checksum"] = _checksum(table)
    files[MANIFEST] = strict_json.serialise(table)
    if secret_key is not None:
        files[SIGNATURE] = signature.sign(secret_key, files[MANIFEST])
    _understand(path, files)
    save = container.write_zip if path.suffix == ".zip" else container.write_folder
    return save(path, files)


def load(path: Path | str, trusted_keys: tuple[TrustedKey, ...] = (), precision: str = "float32") -> Bundle:
    """The bundle at `path`, verified to the last byte; raises `Refused` with one sentence otherwise.

    Args:
        path: a folder or a stored zip.
        trusted_keys: when there are any, the bundle must be signed with one of them.
        precision: what its networks compute in, `float32` or `float64`; what the bundle holds is the same.
    """
    path = Path(path)
    with container.opened(path) as stored:
        listing, manifest = _read_listing(path, stored)
        files = {MANIFEST: manifest}
        for name in sorted(stored.sizes):
            if name not in files:
                files[name] = stored.read(name)
                _check_file(name, files[name], listing)
        stored.check(files)
    if SIGNATURE in files:
        signature.check(files[SIGNATURE], files[MANIFEST], trusted_keys, time.time())
    elif trusted_keys:
        raise Refused(f"{path} is not signed.")
    return _understand(path, files, precision)


def save_again(bundle: Bundle, path: Path) -> Path:
    """Write a loaded bundle somewhere else, as it is (without its signature file)."""
    return write(
        path, bundle.manifest, bundle.weights, bundle.golden, bundle.card, bundle.calibration, extra=bundle.files
    )


def _read_listing(path: Path, stored: container.Container) -> tuple[Mapping[str, Any], bytes]:
    """The manifest's table of files, and the manifest itself, once every announced size is known to be right."""
    if MANIFEST not in stored.sizes:
        raise Refused(f"{path} has no {MANIFEST}.")
    if stored.sizes[MANIFEST] > strict_json.MAX_BYTES:
        raise Refused(
            f"{MANIFEST} is {stored.sizes[MANIFEST]} bytes long, and at most {strict_json.MAX_BYTES} are read."
        )
    data = stored.read(MANIFEST)
    table = strict_json.parse(data, MANIFEST)
    if not isinstance(table, dict) or table.get("kind") != KIND:
        raise Refused(f"{path} is not a bundle: its manifest does not say so.")
    if table.get("schema") != SCHEMA:
        raise Refused(f"The bundle is of schema {table.get('schema')!r:.16}, and this version reads schema {SCHEMA}.")
    if data != strict_json.serialise(table) or table.get("checksum") != _checksum(table):
        raise Refused(f"{MANIFEST} was changed after it was written.")
    listing = table.get("files")
    if not isinstance(listing, dict) or not all(_is_listing_entry(entry) for entry in listing.values()):
        raise Refused(f"{MANIFEST} does not list its files with size and hash.")
    for name in listing:
        container.check_name(name)
        if name not in (*REQUIRED, *OPTIONAL):
            raise Refused(f"{MANIFEST} lists {name!r}, which does not belong into a bundle.")
    for name in (*REQUIRED, *listing):
        if name not in listing or name not in stored.sizes:
            raise Refused(f"{path} lacks {name}.")
        if stored.sizes[name] != listing[name]["bytes"]:
            raise Refused(f"{name} has {stored.sizes[name]} bytes instead of {listing[name]['bytes']}.")
    for name, size in stored.sizes.items():
        if name not in listing and name not in (MANIFEST, SIGNATURE):
            raise Refused(f"{path} holds {name!r}, which its manifest does not list.")
        if name in (CALIBRATION, CARD) and size > strict_json.MAX_BYTES:
            raise Refused(f"{name} is {size} bytes long, and at most {strict_json.MAX_BYTES} are read.")
        if name == SIGNATURE and size != signature.KEY_BYTES + signature.SIGNATURE_BYTES:
            raise Refused(f"{SIGNATURE} has {size} bytes.")
    return listing, data


def _is_listing_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or set(entry) != {"bytes", "sha256"}:
        return False
    return isinstance(entry["bytes"], int) and not isinstance(entry["bytes"], bool) and isinstance(entry["sha256"], str)


def _check_file(name: str, data: bytes, listing: Mapping[str, Any]) -> None:
    if name in listing and hashlib.sha256(data).hexdigest() != listing[name]["sha256"]:
        raise Refused(f"{name} was changed after it was written.")


def _checksum(table: Mapping[str, Any]) -> str:
    rest = {name: entry for name, entry in table.items() if name != "checksum"}
    return hashlib.sha256(strict_json.serialise(rest)).hexdigest()


def _understand(path: Path, files: Mapping[str, bytes], precision: str = "float32") -> Bundle:
    table = strict_json.parse(files[MANIFEST], MANIFEST)
    manifest = manifest_from_json(table)
    if unknown := [name for name in table if name not in _ADDED and name not in Manifest.__dataclass_fields__]:
        raise Refused(f"{MANIFEST} has {unknown[0][:64]!r}, which nothing here understands.")
    calibration = None
    if CALIBRATION in files:
        calibration = calibration_from_json(strict_json.parse(files[CALIBRATION], CALIBRATION))
        world = calibration.world
        if world is not None and len(world.low) != manifest.network.latent:
            raise Refused(
                f"The calibration's worlds have {len(world.low)} latents, the networks' {manifest.network.latent}."
            )
    weights = tensors.parse(files[WEIGHTS], WEIGHTS)
    networks = PolicyNetworks(manifest, weights, precision)
    if networks.critics is None and calibration is not None and manifest.caution != "actor":
        raise Refused("The bundle asks for refinement and has no critics.")
    vectors = tensors.parse(files[GOLDEN], GOLDEN)
    golden.replay(manifest, networks, vectors)
    return Bundle(
        path=path,
        manifest=manifest,
        weights=weights,
        calibration=calibration,
        golden=vectors,
        card=files[CARD].decode("utf-8", "replace"),
        checksum=table["checksum"],
        networks=networks,
        files={name: files[name] for name in OPTIONAL if name in files and name != CALIBRATION},
    )


def with_caution(bundle: Bundle, caution: str | None, refinement: Refinement | None) -> Bundle:
    """The bundle with another kind of caution; what the manifest could not say is refused here too."""
    if caution is None and refinement is None:
        return bundle
    table = bundle.manifest.to_json()
    if caution is not None:
        table["caution"] = caution
    if refinement is not None:
        table["refinement"] = asdict(refinement)
    manifest = manifest_from_json(table)
    if manifest.caution != "actor" and bundle.networks.critics is None:
        raise Refused("Refinement was asked for, and the bundle has no critics.")
    return replace(bundle, manifest=manifest)
