# SPDX-License-Identifier: Apache-2.0
"""Build wheels and source archives of the distributions, with the hatchling of this environment and without network.

Run as `python -m tooling.wheels [NAME ...]` to fill dist/.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tooling import tree


class BuildError(RuntimeError):
    """hatchling refused a distribution; the message carries its output."""


def build(distribution: tree.Distribution, folder: Path, targets: Sequence[str] = ("wheel",)) -> list[Path]:
    """Build one distribution.

    Args:
        distribution: What to build.
        folder: Where the files go; created when missing.
        targets: `wheel`, `sdist` or both.

    Returns:
        The files that were built.

    Raises:
        BuildError: If hatchling fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = [word for target in targets for word in ("--target", target)]
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder), *options]
    result = subprocess.run(command, cwd=distribution.folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        raise BuildError(
            f"building {distribution.name} from {distribution.path} failed:\n{result.stdout}{result.stderr}"
        )
    names = [
        line.strip()
        for line in (result.stdout + result.stderr).splitlines()
        if line.strip().endswith((".whl", ".tar.gz"))
    ]
    return [folder / Path(name).name for name in names]


def build_all(
    distributions: Iterable[tree.Distribution], folder: Path, targets: Sequence[str] = ("wheel",)
) -> dict[str, list[Path]]:
    """Build several distributions, two at a time.

    Args:
        distributions: What to build.
        folder: Where the files go.
        targets: `wheel`, `sdist` or both.

    Returns:
        The files by distribution name.

    Raises:
        BuildError: If hatchling fails for one of them.
    """
    wanted = list(distributions)
    with ThreadPoolExecutor(max_workers=2) as pool:
        built = list(pool.map(lambda item: build(item, folder, targets), wanted))
    return {item.name: files for item, files in zip(wanted, built, strict=True)}


def main(names: Sequence[str]) -> int:
    """Build the named distributions, or all, into dist/.

    Args:
        names: Distribution names.

    Returns:
        0 when all were built.
    """
    known = tree.by_name()
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no distribution is called {', '.join(unknown)}; there are {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    chosen = [known[name] for name in names] or list(known.values())
    for files in build_all(chosen, tree.ROOT / "dist", ("sdist", "wheel")).values():
        print("\n".join(str(file.relative_to(tree.ROOT)) for file in files))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
