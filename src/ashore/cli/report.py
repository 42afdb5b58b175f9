"""`ashore report FOLDER`: one page about everything that a run, a suite or a deployment left behind."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ashore.cli.options import UsageError
from ashore.experiments.report import VIDEO_MEBIBYTES, write_report


@dataclass(frozen=True)
class Options:
    """Write one HTML page, complete in itself, about whatever a folder holds; values come from its files alone."""

    folder: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    """Folder of a run, a suite or a deployment."""
    out: Path | None = None
    """The page; FOLDER/report.html if left out."""
    video_mib: float = VIDEO_MEBIBYTES
    """Videos are put into the page while they are together no larger than this, in MiB; 0 for none."""

    def __post_init__(self) -> None:
        if not self.video_mib >= 0:
            raise ValueError(f"The size of the videos must not be negative, as {self.video_mib:g} is.")


def run(options: Options) -> int:
    """Write the page, and say where it is and what is not in it."""
    try:
        written = write_report(options.folder, options.out, options.video_mib)
    except (ValueError, OSError) as mistake:
        raise UsageError(str(mistake)) from mistake
    for name in written.left_out:
        print(f"left out, too large: {name}")
    print(f"report: {written.path} ({written.path.stat().st_size / 2**20:.1f} MiB)")
    return 0
