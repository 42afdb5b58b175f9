"""`ashore inspect BUNDLE`: everything a bundle says about itself, after it has passed every check."""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ashore.cli.options import UsageError
from ashore_runtime import Refused, bundle
from ashore_runtime.bundle import Bundle
from ashore_runtime.schema import PERCENTILES, Calibration, Field
from ashore_runtime.signature import KEY_BYTES, TrustedKey
from ashore_runtime.world_levels import WorldLevels

_RUN = "config.json"
"""What a run has and no bundle; said again here because whoever knows runs starts JAX."""


@dataclass(frozen=True)
class Options:
    """Verify a bundle to the last byte and show what is in it."""

    bundle: Annotated[Path, tyro.conf.arg(metavar="BUNDLE")]
    """A folder or a stored zip."""
    fields: bool = False
    """Also list every field of the observation."""
    card: bool = False
    """Show its card instead, as it was written."""
    require_signature: Annotated[Path | None, tyro.conf.arg(metavar="KEYFILE")] = None
    """Refuse a bundle that is not signed by a key in this file: a public key per line, perhaps with its last day."""


def run(options: Options) -> int:
    """Load, which verifies; then print."""
    try:
        found = bundle.load(options.bundle, trusted_keys(options.require_signature))
    except Refused as refusal:
        raise UsageError(run_instead(options.bundle) or str(refusal)) from refusal
    if options.card:
        # A stranger's text, and terminals obey what is not printable.
        print("".join(letter for letter in found.card if letter.isprintable() or letter == "\n"))
        return 0
    console = Console()
    for table in _tables(found, options.fields):
        console.print(table)
    if found.calibration is None:
        print("no calibration: the policy runs at eta = 0")
    else:
        for sentence in found.calibration.assumptions:
            console.print(f"- {escape(sentence)}")
    if options.require_signature is not None:
        print(f"signed by a key in {options.require_signature}")
    print(f"verified: hashes, shapes, finite weights, {len(found.golden['eta'])} golden vectors; {found.checksum}")
    return 0


def trusted_keys(file: Path | None) -> tuple[TrustedKey, ...]:
    """The public keys in a file; none without a file, and never none with one: that would trust everybody.

    A line is a key in hexadecimal digits and perhaps the last day (UTC) on which it is believed; `#` begins a remark.
    """
    if file is None:
        return ()
    try:
        lines = file.read_text().splitlines()
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "it is not text"
        raise UsageError(f"The key file {file} cannot be read: {why}.") from error
    said = {number: line.partition("#")[0].split() for number, line in enumerate(lines, start=1)}
    keys = tuple(_trusted_key(words, f"Line {number} of {file}") for number, words in said.items() if words)
    if not keys:
        raise UsageError(f"The key file {file} holds no public key.")
    return keys


def _trusted_key(words: list[str], place: str) -> TrustedKey:
    try:
        key, *day = words
        public = bytes.fromhex(key)
        (last,) = day or (None,)
        end = None if last is None else datetime.date.fromisoformat(last)
    except ValueError:
        public, end = b"", None
    if len(public) != KEY_BYTES:
        raise UsageError(f"{place} is not a public key: {2 * KEY_BYTES} hexadecimal digits, perhaps a day 2027-12-31.")
    if end is None:
        return TrustedKey(public)
    return TrustedKey(public, datetime.datetime.combine(end, datetime.time.max, datetime.UTC).timestamp())


def run_instead(path: Path) -> str | None:
    """What to tell somebody who gave a run where a bundle was asked for; None where it is no run."""
    return f"{path} is a run; export it first: ashore export {path}" if (path / _RUN).is_file() else None


def _tables(found: Bundle, every_field: bool) -> Iterable[Table]:
    manifest = found.manifest
    facts, network = Table("what", "", title=escape(str(found.path)), title_justify="left"), manifest.network
    rows = {
        "task": f"{manifest.task.name}: {manifest.task.summary}",
        "trained by": manifest.method or "nobody says",
        "decides every": f"{manifest.task.control_period:g} s",
        "observation": f"{len(manifest.observation)} numbers, {len(manifest.dynamics_features)} of them dynamics",
        "action": manifest.task.action_map,
        "networks": (
            f"critics {network.critic_heads} x {network.critic_width}, {network.fractions} fractions; "
            if network.critic_heads
            else "no critics: nothing can be refined; "
        )
        + f"others {' x '.join(map(str, network.hidden))}; latent {network.latent}"
        + ("" if found.networks.identifies else ", which stays zero: no encoder")
        + (", takes a risk level" if network.risk_conditioned else ""),
        "budget": f"{manifest.budget.per_episode:g} per episode of {manifest.budget.decisions_per_episode} decisions = "
        f"{manifest.budget.per_decision:g} per decision = {manifest.budget.discounted:g} discounted at "
        f"{manifest.budget.discount:g}",
        "caution": manifest.caution if network.critic_heads or manifest.caution == "actor" else "none",
        "refinement": ", ".join(f"{name} {value}" for name, value in vars(manifest.refinement).items())
        if network.critic_heads
        else "none",
        "weights": f"{len(found.weights)} tensors, {sum(w.size for w in found.weights.values()):,} numbers",
        "versions": ", ".join(f"{name} {text}" for name, text in manifest.versions.items()),
        "ONNX": ", ".join(found.files) or "none",
    }
    for name, text in rows.items():
        facts.add_row(name, escape(text))
    yield facts
    if found.calibration is not None:
        calibration = found.calibration
        yield _schedule(calibration)
        change = calibration.change
        if change is not None:
            rate = change.false_alarms_per_million
            watch = Table(
                "threshold", "drift", "memory", "false alarms", title="change detection", title_justify="left"
            )
            promised = "not measured" if rate is None else f"{rate:g} per million"
            watch.add_row(f"{change.threshold:.3g}", f"{change.drift:g}", str(change.memory), promised)
            yield watch
    yield _fields("action", manifest.action)
    if every_field:
        yield _fields("observation", manifest.observation)
    ranges = Table("parameter", "low", "high", title="trained in", title_justify="left")
    for row in manifest.training_ranges:
        ranges.add_row(*(escape(str(row.get(name))) for name in ("name", "low", "high")))
    yield ranges


def _schedule(calibration: Calibration) -> Table:
    world = calibration.world
    title = "risk schedule" if world is None else "risk schedule: typical world, and percentiles over simulated ones"
    over_worlds = () if world is None else tuple(f"{share} %" for share in PERCENTILES)
    strangers = None if world is None else f"{WorldLevels(world).outside[0]:g}"
    caption = strangers and f"a world unlike all simulated ones: at least {strangers}"
    schedule = Table("transitions", "eta", "feasible", *over_worlds, title=title, caption=caption, title_justify="left")
    shown = [()] * len(calibration.counts) if world is None else world.eta_percentiles
    rows = zip(calibration.counts, calibration.eta, calibration.infeasible, shown, strict=True)
    for count, eta, bad, percentiles in rows:
        schedule.add_row(str(count), f"{eta:g}", "no" if bad else "yes", *(f"{level:g}" for level in percentiles))
    return schedule


def _fields(title: str, fields: tuple[Field, ...]) -> Table:
    table = Table("field", "unit", "low", "high", title=title, title_justify="left")
    for field in fields:
        ends = ("none" if end is None else f"{end:g}" for end in (field.low, field.high))
        table.add_row(escape(field.name), escape(field.unit), *ends)
    return table
