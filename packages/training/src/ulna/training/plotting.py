# SPDX-License-Identifier: Apache-2.0
"""A picture of a training's figures. matplotlib is imported only here, when a plot is drawn."""

from __future__ import annotations

from pathlib import Path

from ulna.core.errors import DatasetError, MissingDependencyError
from ulna.core.files import atomic_path
from ulna.training.metrics import read_metrics

__all__ = ["plot_metrics"]


def plot_metrics(metrics_file: Path | str, png: Path | str, *, title: str | None = None) -> Path:
    """Draw the loss, and the loss on held-out episodes where there is one, over the steps.

    Args:
        metrics_file: `metrics.jsonl`, or the run folder it is in.
        png: The picture to write.
        title: Heading; default: the name of the run folder.

    Returns:
        The picture.

    Raises:
        MissingDependencyError: matplotlib is not installed.
        DatasetError: The file has no loss.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError("matplotlib", "plot_metrics", "pip install 'ulna-training[plot]'") from error
    source = Path(metrics_file)
    lines = list(read_metrics(source))
    series = {name: _series(lines, name) for name in ("loss", "eval_loss")}
    if not series["loss"]:
        raise DatasetError(f"{source} has no logged loss to draw.", hint="Train with log_freq above 0.")
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for points, label in zip(series.values(), ("training", "held out"), strict=True):
        if points:
            axes.plot(*zip(*points, strict=True), label=label, marker="." if len(points) < 40 else None)
    axes.set(xlabel="step", ylabel="loss", title=title or (source if source.is_dir() else source.parent).name)
    if all(value > 0 for points in series.values() for _, value in points):
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend()
    with atomic_path(png) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
    return Path(png)


def _series(lines: list[dict[str, object]], name: str) -> list[tuple[int, float]]:
    return [(int(str(line["step"])), float(str(line[name]))) for line in lines if line.get(name) is not None]
