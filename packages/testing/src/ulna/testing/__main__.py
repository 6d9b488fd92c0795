# SPDX-License-Identifier: Apache-2.0
"""`python -m ulna.testing DISTRIBUTION...` runs the packaging checks of installed distributions."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial

from ulna.testing.running import run_suite
from ulna.testing.suites.packaging import PackagingSuite

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the packaging suite.

    Args:
        arguments: Names of distributions and options; default: those of the command line.

    Returns:
        0 when every distribution passes, else 1.
    """
    parser = argparse.ArgumentParser(prog="python -m ulna.testing", description="Check installed distributions.")
    parser.add_argument("distributions", nargs="+", metavar="DISTRIBUTION")
    parser.add_argument("--json", action="store_true", help="write one JSON object with every check")
    options = parser.parse_args(arguments)
    reports = {name: run_suite(PackagingSuite, partial(str, name)) for name in options.distributions}
    if options.json:
        text = json.dumps({name: report.to_dict() for name, report in reports.items()}, indent=2)
    else:
        text = "\n".join(f"{name}\n{report}" for name, report in reports.items())
    sys.stdout.write(text + "\n")
    return 0 if all(report.ok for report in reports.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
