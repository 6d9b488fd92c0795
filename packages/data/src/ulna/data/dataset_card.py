# SPDX-License-Identifier: Apache-2.0
"""The README of a dataset on the Hub: what it holds, for people and for the Hub's search. No network, no files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from ulna.data.metadata import LeRobotDatasetMetadata

__all__ = ["dataset_card"]

_MOST_TASKS: Final = 20


def dataset_card(
    meta: LeRobotDatasetMetadata, repo_id: str, *, license: str | None = "apache-2.0", tags: Sequence[str] = ()
) -> str:
    """Return the text of a dataset card.

    Args:
        meta: Metadata of the dataset.
        repo_id: `user/name` on the Hub.
        license: Name of the license; None leaves it out.
        tags: Tags besides `LeRobot`.
    """
    header = {
        "license": license,
        "task_categories": ["robotics"],
        "tags": ["LeRobot", *[tag for tag in tags if tag != "LeRobot"]],
        "configs": [{"config_name": "default", "data_files": "data/*/*.parquet"}],
    }
    # JSON is YAML; a value a line keeps it readable.
    yaml = "\n".join(f"{key}: {json.dumps(value)}" for key, value in header.items() if value is not None)
    minutes = meta.total_frames / meta.fps / 60
    facts = [
        ("robot", meta.robot_type or "unknown"),
        ("episodes", str(meta.total_episodes)),
        ("frames", f"{meta.total_frames} at {meta.fps} fps, {minutes:.1f} minutes"),
        ("format", f"LeRobotDataset {meta.info.codebase_version}"),
        *((name, f"{f.dtype} {tuple(f.shape)}") for name, f in meta.parsed_features.items() if not f.is_default),
    ]
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts)
    tasks = list(meta.tasks)
    listed = "\n".join(f"- {task}" for task in tasks[:_MOST_TASKS])
    more = f"\n- and {len(tasks) - _MOST_TASKS} more" if len(tasks) > _MOST_TASKS else ""
    return f"""---
{yaml}
---

# {repo_id.rpartition("/")[2]}

A dataset of robot episodes.

| | |
|---|---|
{rows}

## Tasks

{listed}{more}

## Use

```python
from ulna.data import LeRobotDataset

dataset = LeRobotDataset("{repo_id}")
```
"""
