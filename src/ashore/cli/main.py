"""`ashore VERB ...`: finds the verb, reads its options, and answers mistakes in one sentence."""

import errno
import importlib
import os
import select
import sys
from collections.abc import Sequence
from typing import NamedTuple

from ashore import __version__, names
from ashore.cli.options import UsageError, read

MISUSE = 2
"""Exit code for a command that could not be understood."""
INTERRUPTED = 130
NO_STORAGE = 74
"""Exit code for a file that could not be read or written (EX_IOERR)."""
NOBODY_READS = 141
"""Exit code where nobody reads what is printed any more, as of a program that SIGPIPE ends: `ashore ... | head`."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Verb(NamedTuple):
    """One command: its module is imported only when it is called, because JAX takes seconds to import."""

    module: str
    summary: str


VERBS: dict[str, Verb] = {
    "list": Verb("ashore.cli.list_tasks", "show tasks, presets and methods; with --task, one task's ranges and fields"),
    "doctor": Verb("ashore.cli.doctor", "check what this machine has, with a fix for what it lacks"),
    "play": Verb("ashore.cli.play", "TASK: roll a scripted controller through a task and write a video"),
    "demo": Verb("ashore.cli.demo", "the shipped policies in unseen worlds, with and without caution; page, videos"),
    "train": Verb("ashore.cli.train", "TASK METHOD: train a policy; --resume RUN goes on with a run that was stopped"),
    "evaluate": Verb("ashore.cli.evaluate", "RUN: deploy a trained run in unseen worlds; return and cost by shift"),
    "calibrate": Verb(
        "ashore.cli.calibrate", "RUN: measure how careful a trained run must be; write its risk schedule"
    ),
    "suite run": Verb("ashore.cli.suite_run", "NAME: train, calibrate and evaluate the cells of a suite; resumes"),
    "suite table": Verb("ashore.cli.suite_table", "NAME: the numbers of a suite beside the paper's"),
    "suite compare": Verb("ashore.cli.suite_compare", "NAME FIRST SECOND: differences of two methods, worlds paired"),
    "suite figures": Verb("ashore.cli.suite_figures", "NAME: the figures of a suite, each with its data"),
    "suite videos": Verb("ashore.cli.suite_videos", "NAME: one video per method of a suite, in the same unseen world"),
    "export": Verb("ashore.cli.export", "RUN: write a trained run as a bundle that acts anywhere"),
    "inspect": Verb("ashore.cli.inspect_bundle", "BUNDLE: verify a bundle and show what is in it"),
    "deploy": Verb("ashore.cli.deploy", "BUNDLE: run a bundle in a world it never saw; log, figure, video"),
    "report": Verb("ashore.cli.report", "FOLDER: one page about a run, a suite or a deployment"),
    "bench train": Verb("ashore.cli.bench_train", "measure experience and updates per second of training"),
    "bench env": Verb("ashore.cli.bench_env", "measure steps per second by task, engine and batch size"),
    "bench act": Verb("ashore.cli.bench_act", "[BUNDLE]: measure how long a decision takes, part by part"),
    "bench parity": Verb("ashore.cli.bench_parity", "BUNDLE: does the runtime act as trained; predicted cost by eta"),
    "bench critic": Verb("ashore.cli.bench_critic", "RUN: what its cost critics expect, and what is then paid"),
    "bench change": Verb("ashore.cli.bench_change", "BUNDLE: change the dynamics mid-way; delay, false alarms, cost"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        if _is_read():
            print("ashore: a program that this one writes to has ended; is the disk full?", file=sys.stderr)
            return NO_STORAGE
        # Python would try once more to print what is left when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS
    except (UsageError, names.UnknownName) as mistake:
        print(f"ashore: {mistake}", file=sys.stderr)
        return MISUSE
    except OSError as problem:
        if problem.filename is None and problem.errno not in _NO_ROOM:
            raise  # Nothing that a file or folder could mend.
        print(f"ashore: {_storage_problem(problem)}", file=sys.stderr)
        return NO_STORAGE
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_help())
        return 0
    if words[0] == "--version":
        print(f"ashore {__version__}")
        return 0
    verb, rest = _verb(words)
    module = importlib.import_module(VERBS[verb].module)
    options = read(module.Options, rest, f"ashore {verb}")
    return module.run(options)


def _is_read() -> bool:
    """Whether what is printed still has a reader: a pipe without one is an error to wait for."""
    waiting = select.poll()
    waiting.register(sys.stdout.fileno(), select.POLLOUT)
    return not any(event & (select.POLLERR | select.POLLHUP) for _, event in waiting.poll(0))


def _verb(words: list[str]) -> tuple[str, list[str]]:
    for length in (2, 1):
        verb = " ".join(words[:length])
        if verb in VERBS:
            return verb, words[length:]
    first = [verb for verb in VERBS if verb.split()[0] == words[0]]
    if first:
        # Only the first half of a two-word verb.
        wanted = [verb.split()[1] for verb in first]
        if len(words) == 1 or words[1] in ("-h", "--help"):
            raise UsageError(f"Say what to {words[0]}: {', '.join(wanted)}.")
        raise UsageError(names.unknown(f"thing to {words[0]}", words[1], wanted))
    if words[0].startswith("-"):
        raise UsageError(names.unknown("option", words[0], ["--help", "--version"]))
    raise UsageError(names.unknown("verb", words[0], VERBS))


def _storage_problem(problem: OSError) -> str:
    place = "" if problem.filename is None else f"{problem.filename}: "
    return f"{place}{problem.strerror or problem}. Make room there, mend its permissions or choose another folder."


def _help() -> str:
    width = max(len(verb) for verb in VERBS)
    lines = [f"  {verb:<{width}}  {entry.summary}" for verb, entry in VERBS.items()]
    return "\n".join(
        [
            "usage: ashore VERB [OPTIONS]",
            "",
            "Train a cost-aware policy in simulation, calibrate its caution, deploy it careful-first.",
            "",
            *lines,
            "",
            "ashore VERB --help shows the options of a verb; ashore --version shows the version.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
