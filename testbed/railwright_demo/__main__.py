"""`python -m railwright_demo`: the demo, its bars, and a line of JSON at the end."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from railwright_cli.errors import CommandError
from railwright_demo import figures, own_cluster, real, simulated
from railwright_demo.errors import DemoError, DemoRefused
from railwright_demo.figures import Figures
from railwright_demo.screen import Screen
from railwright_testbed import TestbedError, missing_for_real_nodes

EXIT_MISSED = 1
EXIT_IMPOSSIBLE = 3
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Interrupted(BaseException):
    """A signal ends the demo; like KeyboardInterrupt, no handler of errors may catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every bar holds, 1 if not, 3 where it cannot run, 128 + number after a signal."""
    options = _options(arguments)
    if not (options.simulated or options.kubeconfig) and (missing := missing_for_real_nodes()):
        return _impossible(missing)
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    screen = Screen(sys.stderr)
    try:
        found, timeline = _play(screen, options)
    except _Interrupted as interrupted:
        # On a cluster of the user's, the demo has said what is cleaned up.
        cleaned = "" if options.kubeconfig else "; everything is cleaned up"
        screen.report(f"ended by {interrupted}{cleaned}")
        return 128 + interrupted.number
    except DemoRefused as refused:
        screen.report(f"the demo was not started: {refused}")
        return EXIT_IMPOSSIBLE
    except (CommandError, DemoError, TestbedError) as error:
        screen.report(f"the demo failed: {error}")
        return EXIT_MISSED
    print(timeline)
    missed = figures.missed(found, simulated=options.simulated)
    for words in missed:
        screen.report(f"bar missed: {words}")
    print(found.line(), flush=True)
    return EXIT_MISSED if missed else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m railwright_demo", description=__doc__)
    parser.add_argument("--simulated", action="store_true", help="no pods run; needs no root")
    parser.add_argument("--kubeconfig", default="", help="run it on the cluster of this file")
    parser.add_argument("--image", default="", help="the image of the operator, for that cluster")
    parser.add_argument("--train-image", default="", help="an image with torch, for the job there")
    parser.add_argument("--storage-class", default="", help="default: that of the cluster")
    parser.add_argument("--yes", action="store_true", help="do not ask before it is installed")
    return parser.parse_args(arguments)


def _play(screen: Screen, options: argparse.Namespace) -> tuple[Figures, str]:
    if options.simulated:
        return simulated.play(screen)
    if not options.kubeconfig:
        return real.play(screen)
    request = own_cluster.Request(
        kubeconfig=options.kubeconfig,
        image=options.image,
        train_image=options.train_image,
        storage_class=options.storage_class,
        is_confirmed=options.yes,
    )
    return own_cluster.play(screen, request)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    # Once is enough: what runs from here on is the cleaning up.
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    print("\ncleaning up", file=sys.stderr, flush=True)
    raise _Interrupted(number)


def _impossible(missing: Sequence[str]) -> int:
    print("The demo needs five real nodes on this machine, and here it lacks:", file=sys.stderr)
    for what in missing:
        print(f"  - {what}", file=sys.stderr)
    print(
        "`make demo-simulated` needs none of it: scheduling, failure and re-placement are the "
        "same there, without real pods.",
        file=sys.stderr,
    )
    return EXIT_IMPOSSIBLE


if __name__ == "__main__":
    sys.exit(main())
