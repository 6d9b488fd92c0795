# SPDX-License-Identifier: Apache-2.0
"""Streams in processes of a real torch.distributed group, with and without workers, share out every frame once.

Run as a program, this file is one rank, or starts ranks from a stream that it made itself.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from ulna.data import StreamingLeRobotDataset

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks inside a group, over the interface lo")

LENGTHS = [5, 40, 3, 70, 1]
"""119 frames: neither frames nor episodes can be divided by the number of readers."""
RANKS = 2
TIMEOUT_S = 540
"""What bounds a hang: the ranks take half a minute, and several times that on a busy machine."""

IN_ORDER = 1000
"""Added to the numbers of frames that come from the second of two streams."""

Passes = list[list[int]]


class Both(IterableDataset[dict[str, int]]):
    """Two streams one after the other in the same workers, whose start costs seconds."""

    def __init__(self, *streams: StreamingLeRobotDataset) -> None:
        super().__init__()
        self.streams = streams

    def __iter__(self) -> Iterator[dict[str, int]]:
        for place, stream in enumerate(self.streams):
            for item in stream:
                yield {"index": int(item["index"]) + place * IN_ORDER}


def loader(stream: IterableDataset[Any], workers: int = 0, context: str | None = None, batch: int = 7) -> Any:
    return DataLoader(
        stream,
        batch_size=batch,
        num_workers=workers,
        multiprocessing_context=context,
        persistent_workers=context == "spawn",  # a pass costs no start of processes
    )


def one_pass(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch["index"]]


def passes_of(stream: StreamingLeRobotDataset, workers: int = 0, context: str | None = None) -> Passes:
    batches = loader(stream, workers, context)
    return [one_pass(batches) for _ in range(2)]


def resumed(root: Path, workers: int, context: str | None) -> dict[str, Passes]:
    """Take two batches of each reader, and let another stream go on for two passes."""
    first = StreamingLeRobotDataset("lab/scene", root, buffer_size=16)
    readers = max(1, workers)
    batches = iter(loader(first, workers, context))
    head = [int(n) for _ in range(2 * readers) for n in next(batches)["index"]]
    state = {"epoch": 0, "taken": 14} if workers else first.state_dict()
    del batches
    second = StreamingLeRobotDataset("lab/scene", root, buffer_size=16)
    second.load_state_dict(state)
    return {"head": [head], "rest": passes_of(second, workers, context)}


def rank_main(folder: Path, early: StreamingLeRobotDataset) -> dict[str, Any]:
    """Read in every way that is tested, inside the group."""
    root = folder / "data"

    def stream(**options: Any) -> StreamingLeRobotDataset:
        return StreamingLeRobotDataset("lab/scene", root, **{"buffer_size": 16, **options})

    found: dict[str, Any] = {
        "alone": passes_of(stream()),
        "same seed": passes_of(stream()),
        "other seed": passes_of(stream(seed=7)),
        "in order": passes_of(stream(shuffle=False)),
        "subset": passes_of(stream(episodes=[3, 0, 2])),
        "one frame": passes_of(stream(episodes=[4])),
        "made before the group": passes_of(early),
        "sent before the group": passes_of(pickle.loads((folder / "stream.bin").read_bytes())),
        "fork": passes_of(stream(), 2, "fork"),
        "fork, in order": passes_of(stream(shuffle=False), 2, "fork"),
        "fork, subset": passes_of(stream(episodes=[3, 0, 2]), 2, "fork"),
        "fork, one frame": passes_of(stream(episodes=[4]), 2, "fork"),
        "fork, copied": passes_of(copy.deepcopy(stream()), 2, "fork"),
        "resumed": resumed(root, 0, None),
        "fork, resumed": resumed(root, 2, "fork"),
    }
    together = loader(Both(stream(), stream(shuffle=False)), 2, "spawn")
    passes = [one_pass(together) for _ in range(2)]
    found["spawn"] = [[n for n in numbers if n < IN_ORDER] for numbers in passes]
    found["spawn, in order"] = [[n - IN_ORDER for n in numbers if n >= IN_ORDER] for numbers in passes]
    found["steps"] = steps_together(stream())
    return found


def steps_together(stream: StreamingLeRobotDataset) -> list[list[int]]:
    """Take the steps that every rank has, waiting for each other, then the rest alone; tell what each had, and took."""
    batch, workers = 29, 2  # shares of 29, 30, 30 and 30 frames: one batch less for the first rank
    batches = iter(loader(stream, workers, "fork", batch))
    steps = workers * math.ceil(stream.part_length(0, RANKS * workers) / batch)
    for taken in islice(batches, steps):
        count = torch.tensor([len(taken["index"])])
        torch.distributed.all_reduce(count)
        assert int(count) == RANKS * batch
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(RANKS)]
    torch.distributed.all_gather(counts, torch.tensor([steps + len(list(batches))]))
    return [[steps], [int(count) for count in counts]]


def join(folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=RANKS
    )


def inherited(rank: int, folder: Path, stream: StreamingLeRobotDataset) -> None:
    """Read a stream that the process made which started all ranks; each rank chooses its epochs itself."""
    join(folder, rank)
    first = one_pass(loader(stream))
    torch.distributed.barrier()
    if rank == 0:
        stream.set_epoch(5)
    torch.distributed.barrier()
    second = one_pass(loader(stream)) if rank == 1 else []
    torch.distributed.barrier()
    if rank == 0:
        stream.set_epoch(1)
        second = one_pass(loader(stream))
    stream.set_epoch(5)
    third = one_pass(loader(stream, 2, "fork"))
    (folder / f"{rank}.json").write_text(json.dumps([first, second, third]))
    torch.distributed.destroy_process_group()


def program(role: str, folder: Path) -> None:
    stream = StreamingLeRobotDataset("lab/scene", folder / "data", buffer_size=16)
    if role == "parent":
        starting: Any = torch.multiprocessing
        starting.start_processes(inherited, args=(folder, stream), nprocs=RANKS, start_method="fork")
        return
    join(folder, int(role))
    found = rank_main(folder, stream)
    (folder / f"{role}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


def run(folder: Path, roles: Sequence[str]) -> list[Any]:
    """Run this file in processes that meet; all of them, and theirs, are gone afterwards."""
    kept = {name: value for name, value in os.environ.items() if name not in {"RANK", "WORLD_SIZE", "LOCAL_RANK"}}
    environment = {**kept, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    started: list[subprocess.Popen[str]] = []
    try:
        for role in roles:
            with (folder / f"{role}.log").open("w") as log:
                command = [sys.executable, __file__, role, str(folder)]
                started.append(
                    subprocess.Popen(
                        command, stdout=log, stderr=log, text=True, env=environment, start_new_session=True
                    )
                )
        codes = [process.wait(TIMEOUT_S) for process in started]
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert not any(codes), "\n".join((folder / f"{role}.log").read_text() for role in roles)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture
def data(folder: Path, scene: Any) -> Path:
    """A dataset of several files."""
    if not (folder / "data").exists():
        scene().record(folder / "data", LENGTHS, data_files_size_in_mb=0.001)
        assert len(list((folder / "data/data").rglob("*.parquet"))) > 2
    return folder / "data"


@pytest.fixture
def ranks(folder: Path, data: Path) -> list[dict[str, Any]]:
    """What each rank has read; they run once, also when that fails."""
    if not (folder / "stream.bin").exists():
        stream = StreamingLeRobotDataset("lab/scene", data, buffer_size=16)
        (folder / "stream.bin").write_bytes(pickle.dumps(stream))
        return run(folder, [str(rank) for rank in range(RANKS)])
    results = [folder / f"{rank}.json" for rank in range(RANKS)]
    if not all(path.exists() for path in results):
        pytest.fail("The ranks have failed before: see the first failure.")
    return [json.loads(path.read_text()) for path in results]


EVERYTHING = list(range(sum(LENGTHS)))
PARTS = {"subset": [*range(5), *range(45, 118)], "one frame": [118]}
NEVER_MIXED = {"in order", "one frame"}
WAYS = ["", "in order", "subset", "one frame"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "what"),
    [*(("", way) for way in WAYS), *(("fork", way) for way in WAYS), *(("spawn", w) for w in WAYS[:2])],
)
def test_ranks_share_every_pass(ranks: list[dict[str, Any]], workers: str, what: str) -> None:
    """Ranks and their workers read every frame once together in each pass, mixed anew, in shares of nearly one size."""
    case = ", ".join(filter(None, (workers, what))) or "alone"
    passes = [[rank[case][number] for rank in ranks] for number in range(2)]
    for shares in passes:
        assert sorted(chain(*shares)) == PARTS.get(what, EVERYTHING)
        assert abs(len(shares[0]) - len(shares[1])) <= 1
    assert (passes[0] == passes[1]) == (what in NEVER_MIXED)
    if case == "in order":
        assert list(chain(*passes[0])) == EVERYTHING


@pytest.mark.slow
def test_ranks_agree_on_the_order(ranks: list[dict[str, Any]]) -> None:
    """Equal seeds give equal orders, however workers are started."""
    for rank in ranks:
        assert rank["alone"] == rank["same seed"] != rank["other seed"]
        assert rank["spawn"] == rank["fork"]


@pytest.mark.slow
def test_ranks_take_steps_together(ranks: list[dict[str, Any]]) -> None:
    """Numbers of batches may differ by one; the number that follows from the smallest share is one that all have."""
    assert [rank["steps"] for rank in ranks] == [[[2], [3, 4]]] * RANKS


@pytest.mark.parametrize("workers", [0, 2])
def test_the_environment_of_the_reader_counts(
    tmp_path: Path, scene: Any, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """A stream that was pickled elsewhere reads the share that the environment of its new process names."""
    scene().record(tmp_path / "data", LENGTHS)
    stream = StreamingLeRobotDataset("lab/scene", tmp_path / "data", buffer_size=16)
    sent = pickle.dumps(stream)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    context = "fork" if workers else None
    wanted = StreamingLeRobotDataset("lab/scene", tmp_path / "data", buffer_size=16, rank=1, world_size=2)
    wanted_passes = passes_of(wanted, workers, context)
    assert passes_of(pickle.loads(sent), workers, context) == wanted_passes
    assert len(wanted_passes[0]) == 60


@pytest.mark.slow
@pytest.mark.parametrize("when", ["made before the group", "sent before the group", "fork, copied"])
def test_a_stream_learns_its_rank_when_it_is_read(ranks: list[dict[str, Any]], when: str) -> None:
    """A stream that was made, pickled or copied before the group existed reads the share of the rank that reads it."""
    for rank in ranks:
        assert rank[when] == rank["fork" if "fork" in when else "alone"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["", "fork, "])
def test_ranks_go_on(ranks: list[dict[str, Any]], workers: str) -> None:
    """Each rank goes on where it was, also through workers, and the pass after that is the next one."""
    for rank in ranks:
        head, (rest, after) = rank[f"{workers}resumed"]["head"][0], rank[f"{workers}resumed"]["rest"]
        whole = rank["fork" if workers else "alone"]
        assert head + rest == whole[0]
        assert after == whole[1]


@pytest.mark.slow
def test_ranks_that_inherit_a_stream(tmp_path: Path, scene: Any) -> None:
    """Ranks started from a stream of their parent count epochs apart: what one chooses does not reach the other."""
    scene().record(tmp_path / "data", LENGTHS, data_files_size_in_mb=0.001)
    passes = zip(*run(tmp_path, ["parent"]), strict=True)
    for epoch, (shares, workers) in zip((0, 1, 5), zip(passes, (1, 1, 2), strict=True), strict=True):
        assert sorted(chain(*shares)) == EVERYTHING, epoch
        stream = StreamingLeRobotDataset("lab/scene", tmp_path / "data", buffer_size=16)
        for rank, numbers in enumerate(shares):
            readers = [
                stream.read_part(rank * workers + worker, RANKS * workers, epoch=epoch) for worker in range(workers)
            ]
            wanted = [[int(item["index"]) for item in reader] for reader in readers]
            assert sorted(numbers) == sorted(chain(*wanted))
            assert workers > 1 or [numbers] == wanted


if __name__ == "__main__":
    torch.set_num_threads(1)
    program(sys.argv[1], Path(sys.argv[2]))
