"""`ashore export RUN`: a trained run as a bundle that acts anywhere."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from ashore.cli.options import UsageError
from ashore.compilation_cache import keep_compiled_programs
from ashore.experiments import bundle_card, change_calibration, exporting, onnx_export
from ashore_runtime import Refused, signature


@dataclass(frozen=True, kw_only=True)
class Options:
    """Write one seed of a trained run as a bundle: weights, calibration, golden vectors, a card. No pickle."""

    run: Annotated[Path, tyro.conf.arg(metavar="RUN"), tyro.conf.Positional]
    """Folder of the run."""
    seed_index: int = 0
    """Which of the run's seeds."""
    out: Path | None = None
    """Where: a zip if it ends in .zip, a folder otherwise; RUN/bundle/seed_K.bundle if left out."""
    onnx: bool = False
    """Also write the actor and one refinement step as ONNX (needs the extra 'onnx')."""
    without_calibration: bool = False
    """Leave the run's calibration out; the policy then runs at eta = 0."""
    without_change_detection: bool = False
    """Do not measure what simulated worlds without a change look like; a change is then not noticed."""
    change_decisions: int = 100_000
    """Decisions in simulation from which the change detector's threshold comes; as many others choose its drift."""
    false_alarms: float = 20.0
    """False alarms of the change detector per million decisions that one can live with; each costs some caution."""
    sign: Annotated[Path | None, tyro.conf.arg(metavar="KEYFILE")] = None
    """Sign the bundle with the secret key in this file: 64 hexadecimal digits."""


def run(options: Options) -> int:
    """Export, and say where the bundle is."""
    keep_compiled_programs()
    console = Console()
    path = options.out or options.run / "bundle" / f"seed_{options.seed_index}.bundle"
    try:
        with console.status("exporting") as status:
            secret = None if options.sign is None else exporting.read_secret_key(options.sign)
            trained = exporting.load_trained(options.run, options.seed_index)
            extra = onnx_export.onnx_files(trained) if options.onnx else None
            found = None if options.without_calibration else exporting.read_calibration(trained)
            change = None
            watch = trained.predicts and not options.without_change_detection
            if found is not None and found[0].change is None and watch:
                status.update("watching simulated worlds that do not change")
                change = change_calibration.calibrated_change(
                    trained, found, options.change_decisions, options.false_alarms
                )
                status.update("exporting")
            made = exporting.export_run(trained, path, found, change=change, extra=extra, secret_key=secret)
    except (ValueError, Refused) as mistake:
        raise UsageError(str(mistake)) from mistake
    except OSError as problem:
        # A disk that fills up while a file is written does not say which one.
        problem.filename = problem.filename or str(path)
        raise
    print(f"bundle: {made.path} ({sum(file.stat().st_size for file in _files(made.path)) / 2**20:.1f} MiB)")
    print(f"checksum: {made.checksum}")
    if secret is not None:
        print(f"signed; public key: {signature.public_key(secret).hex()}")
    if made.calibration is None:
        remedy = " `ashore calibrate` measures one." if trained.identifies else ""
        print(f"There is no calibration in it: it runs at eta = 0.{remedy}")
    elif (warning := bundle_card.infeasible(made.calibration)) is not None:
        print(warning)
    return 0


def _files(path: Path) -> list[Path]:
    return list(path.iterdir()) if path.is_dir() else [path]
