# SPDX-License-Identifier: Apache-2.0
"""Files of a pipeline, in LeRobot's layout: one JSON, a safetensors file for each step with state, artifact folders.

A step is found by its registered name through the plugin registry; a dotted path in a file is never imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ulna.core.errors import PluginNotFoundError, ProcessorError, nearest
from ulna.core.files import write_text
from ulna.core.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from ulna.core.pipeline import DataProcessorPipeline, ProcessorStep

__all__ = ["build_steps", "load_pipeline_parts", "pipeline_config", "pipeline_filename", "save_pipeline"]


def pipeline_filename(name: str) -> str:
    """Return the file stem for a pipeline: lower case, everything but letters and digits replaced by `_`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def pipeline_config(pipeline: DataProcessorPipeline[Any, Any]) -> dict[str, Any]:
    """Return the JSON form of a pipeline without state.

    Args:
        pipeline: The pipeline.

    Returns:
        `name` and `steps`.

    Raises:
        ProcessorError: A step has no registered name, so nobody could find it again.
    """
    steps = []
    for step in pipeline.steps:
        if not step.registry_name:
            raise ProcessorError(
                f"{type(step).__name__} has no registry_name and cannot be saved.",
                hint="Give the class a registry_name and offer it under that name in the group ulna.processors.",
            )
        steps.append({"registry_name": step.registry_name, "config": step.get_config()})
    return {"name": pipeline.name, "steps": steps}


def save_pipeline(pipeline: DataProcessorPipeline[Any, Any], folder: Path, config_filename: str | None) -> Path:
    """Write a pipeline; the JSON last, so that it names only files that are there.

    Args:
        pipeline: The pipeline.
        folder: Created when missing.
        config_filename: Instead of `<name>.json`.

    Returns:
        The JSON file.
    """
    stem = pipeline_filename(pipeline.name)
    config = pipeline_config(pipeline)
    json.dumps(config)
    folder.mkdir(parents=True, exist_ok=True)
    for index, (step, entry) in enumerate(zip(pipeline.steps, config["steps"], strict=True)):
        state = step.state_dict()
        if state:
            entry["state_file"] = f"{stem}_step_{index}_{step.registry_name}.safetensors"
            write_tensors(folder / entry["state_file"], state)
        artifacts = step.save_artifacts(folder)
        if artifacts:
            entry["artifacts"] = artifacts
    path = folder / (config_filename or f"{stem}.json")
    write_text(path, json.dumps(config, indent=2))
    return path


def _step_class(entry: Mapping[str, Any]) -> type[ProcessorStep]:
    from ulna.core.pipeline import ProcessorStep
    from ulna.core.plugins import registry

    name = entry.get("registry_name")
    if not name:
        raise ProcessorError(
            f"Step {entry.get('class', entry)!r} has no registry_name; code named in a file is not imported.",
            hint="Offer the step under a name in the entry-point group ulna.processors, and write that into the file.",
        )
    try:
        found = registry().load("processors", name)
    except PluginNotFoundError as error:
        known = registry().types("processors")
        near = nearest(name, known)
        raise ProcessorError(
            f"No installed distribution offers the processor step {name!r}"
            + (f"; nearest is {near!r}." if near else "."),
            hint="Install the plugin that wrote this pipeline; `ulna plugins list --kind processors` shows those here.",
        ) from error
    if not (isinstance(found, type) and issubclass(found, ProcessorStep)):
        raise ProcessorError(f"{name!r} is {found!r}, which is no ProcessorStep class.")
    return found


def _build(entry: Mapping[str, Any], settings: Mapping[str, Any], folder: Path | None) -> ProcessorStep:
    cls = _step_class(entry)
    arguments = dict(settings)
    for argument, relative in (entry.get("artifacts") or {}).items():
        arguments.setdefault(argument, str(_inside(folder, relative)))
    try:
        return cls(**arguments)
    except TypeError as error:
        raise ProcessorError(
            f"Step {entry.get('registry_name')!r} does not take its settings {arguments!r}: {error}"
        ) from error


def _inside(folder: Path | None, relative: str) -> Path:
    parts = PurePosixPath(relative).parts
    if folder is None or relative.startswith("/") or ".." in parts or ":" in relative:
        raise ProcessorError(f"Path {relative!r} of a pipeline must lie inside its folder.")
    return folder / relative


def build_steps(config: Mapping[str, Any]) -> list[ProcessorStep]:
    """Build the steps of a pipeline's JSON form, without state.

    Args:
        config: `name` and `steps`.

    Returns:
        The steps.

    Raises:
        ProcessorError: A step is unknown or its settings do not fit.
    """
    return [_build(entry, entry.get("config") or {}, None) for entry in config.get("steps", ())]


def load_pipeline_parts(
    source: Path | str, config_filename: str, overrides: Mapping[str, Mapping[str, Any]], revision: str | None
) -> tuple[list[ProcessorStep], str]:
    """Read the steps of a saved pipeline with their state.

    Args:
        source: A folder, the JSON file, or a Hub repository.
        config_filename: Name of the JSON file.
        overrides: Registered name to settings that replace the saved ones; `stats` replace the saved state.
        revision: Hub revision.

    Returns:
        The steps and the pipeline's name.

    Raises:
        ProcessorError: A file is missing or damaged, a step is unknown, or an override names no step.
    """
    from ulna.core.hub import local_folder

    folder = local_folder(source, revision=revision, needs=config_filename)
    if folder.is_file():
        folder, config_filename = folder.parent, folder.name
    path = folder / config_filename
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        entries = config["steps"]
    except FileNotFoundError as error:
        there = ", ".join(sorted(p.name for p in folder.glob("*.json"))) or "none"
        raise ProcessorError(f"No {config_filename} in {folder}; JSON files there: {there}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ProcessorError(f"{path} is no pipeline file: {error!r}") from error
    names = [entry.get("registry_name", "") for entry in entries]
    unused = [name for name in overrides if name not in names]
    if unused:
        raise ProcessorError(f"Overrides for {', '.join(unused)}, but {path.name} has the steps {', '.join(names)}.")
    steps = []
    for entry, name in zip(entries, names, strict=True):
        changed = overrides.get(name, {})
        step = _build(entry, {**(entry.get("config") or {}), **changed}, folder)
        if entry.get("state_file") and "stats" not in changed:
            step.load_state_dict(read_tensors(_inside(folder, entry["state_file"])))
        steps.append(step)
    return steps, str(config.get("name", path.stem))
