# SPDX-License-Identifier: Apache-2.0
"""Checkpoints on disk: whole or not there, whatever happens while they are written."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ulna.training import (
    TrainPipelineConfig,
    checkpoints,
    find_checkpoint,
    last_checkpoint,
    read_metrics,
    train,
    trainer,
)
from ulna.training.checkpoints import Checkpoint, checkpoint_folder, new_checkpoint
from ulna.training.errors import CheckpointNotWrittenError

Make = Callable[..., TrainPipelineConfig]


def _write(folder: Path, text: str = "{}", **options: int) -> None:
    with new_checkpoint(folder, **options) as unfinished:
        (unfinished.model / "config.json").write_text(text, encoding="utf-8")
        step = json.dumps({"step": int(folder.name)})
        (unfinished.state / "training_step.json").write_text(step, encoding="utf-8")


def _killed(action: Callable[[], None]) -> None:
    """Run something in a child process that kills itself with SIGKILL."""
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def test_killed_while_writing(tmp_path: Path) -> None:
    """kill -9 in the middle of a checkpoint leaves the older one and `last`; the next one clears the rest away."""
    folder = tmp_path / "checkpoints"
    _write(folder / "000001")

    def half() -> None:
        with new_checkpoint(folder / "000002") as unfinished:
            (unfinished.model / "config.json").write_text("{}", encoding="utf-8")
            _die()

    _killed(half)
    assert not (folder / "000002").exists()
    assert find_checkpoint(tmp_path).path == folder / "000001"
    assert list(folder.glob(".*"))
    _write(folder / "000003")
    assert not list(folder.glob(".*"))
    assert find_checkpoint(tmp_path).path == folder / "000003"


def test_killed_before_last_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kill -9 between the checkpoint and its name: both are whole, `last` still names the older."""
    folder = tmp_path / "checkpoints"
    _write(folder / "000001")
    monkeypatch.setattr(checkpoints, "_point_last", lambda _: _die())
    _killed(lambda: _write(folder / "000002"))
    assert Checkpoint(folder / "000002").complete
    assert find_checkpoint(tmp_path).path == folder / "000001"


def test_killed_while_replacing(tmp_path: Path) -> None:
    """Writing over a checkpoint moves the old one aside; when the process dies just then, the old one is put back."""
    folder = tmp_path / "checkpoints"
    _write(folder / "000001", "old")
    (folder / "000001").rename(folder / ".000001.abc.old")
    assert last_checkpoint(folder) is None
    _write(folder / "000002")
    assert (folder / "000001/pretrained_model/config.json").read_text(encoding="utf-8") == "old"


def test_failed_write_changes_nothing(tmp_path: Path) -> None:
    """An error while writing over a checkpoint leaves it as it was."""
    folder = tmp_path / "checkpoints"
    _write(folder / "000001", "old")

    def fail() -> None:
        with new_checkpoint(folder / "000001") as unfinished:
            (unfinished.model / "config.json").write_text("new", encoding="utf-8")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert (folder / "000001/pretrained_model/config.json").read_text(encoding="utf-8") == "old"
    assert sorted(p.name for p in folder.iterdir()) == ["000001", "last"]


def test_full_disk_says_which_checkpoint_is_left(
    toy_config: Make, helpers: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second checkpoint does not fit: the first is whole, is named, and the run goes on from it."""
    config = toy_config(steps=4, save_freq=2)
    write = trainer.save_optimizer

    def full(optimizer: object, folder: Path) -> None:
        if "000004" in str(folder):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(optimizer, folder)

    monkeypatch.setattr(trainer, "save_optimizer", full)
    with pytest.raises(CheckpointNotWrittenError) as caught:
        train(config, dataset=helpers.copy_data())
    assert config.output_dir is not None
    left = last_checkpoint(config.output_dir / "checkpoints")
    assert left is not None
    assert left.path.name == "000002"
    assert "No space left" in str(caught.value)
    assert "000002" in caught.value.message
    assert f"ulna train --resume --config={config.output_dir}" in str(caught.value)


def test_settings_that_cannot_be_written(toy_config: Make, helpers: SimpleNamespace) -> None:
    """A value that JSON cannot hold fails the save with an error; the older checkpoint still resumes."""

    class Spoils(helpers.Recorder):  # type: ignore[misc, name-defined]
        def checkpoint_written(self, path: Path, step: int) -> None:
            trainer.config.policy._unknown["odd"] = object()  # type: ignore[union-attr]

    from ulna.training import Trainer

    trainer = Trainer(toy_config(steps=4, save_freq=2), dataset=helpers.copy_data(), observers=[Spoils()])
    with pytest.raises(TypeError, match="not JSON serializable"):
        trainer.run()
    checkpoint = find_checkpoint(trainer.output_dir)
    assert checkpoint.training_step()["step"] == 2
    result = train(TrainPipelineConfig.from_checkpoint(trainer.output_dir), dataset=helpers.copy_data())
    assert result.step == 4


def test_last_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where links are not allowed, `last` is a small file, and every way of naming the run still works."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(1314, "A required privilege is not held by the client")

    folder = tmp_path / "checkpoints"
    _write(folder / "000001")
    monkeypatch.setattr(Path, "symlink_to", refuse)
    _write(folder / "000002")
    assert (folder / "last").read_text(encoding="utf-8") == "000002\n"
    for name in (tmp_path, folder, folder / "last"):
        assert find_checkpoint(name).path == folder / "000002"
    monkeypatch.undo()
    _write(folder / "000003")
    assert (folder / "last").is_symlink()
    assert find_checkpoint(tmp_path).path == folder / "000003"


def test_last_that_dangles(tmp_path: Path) -> None:
    """When the checkpoint that `last` names was deleted, the newest whole one is taken."""
    folder = tmp_path / "checkpoints"
    for step in (1, 2):
        _write(folder / f"00000{step}")
    (folder / "000002/training_state/training_step.json").unlink()
    assert find_checkpoint(tmp_path).path == folder / "000001"


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    """With `keep_last`, older checkpoints go when the newest is whole."""
    folder = tmp_path / "checkpoints"
    for step in range(1, 5):
        _write(folder / f"00000{step}", keep_last=2)
    assert sorted(p.name for p in folder.iterdir()) == ["000003", "000004", "last"]


def test_folder_names(tmp_path: Path) -> None:
    """Steps are padded to six digits, or to as many as the last step has."""
    assert checkpoint_folder(tmp_path, 100, 5000).name == "000100"
    assert checkpoint_folder(tmp_path, 100, 12_345_678).name == "00000100"


def test_damaged_step_is_named(tmp_path: Path) -> None:
    """A checkpoint whose step cannot be read says which file."""
    _write(tmp_path / "checkpoints/000001")
    file = tmp_path / "checkpoints/000001/training_state/training_step.json"
    for text, words in (("{", "damaged"), ("[]", "does not say a step"), ('{"step": -4}', "does not say a step")):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=words):
            find_checkpoint(tmp_path).training_step()


def test_last_that_became_a_folder_is_kept_aside(tmp_path: Path) -> None:
    """A copy that follows links makes a checkpoint of `last`; the run goes on, and nothing of it is deleted."""
    folder = tmp_path / "checkpoints"
    _write(folder / "000001", "old")
    (folder / "last").unlink()
    (folder / "000001").rename(folder / "last")
    _write(folder / "000002", "new")
    assert (folder / "last").resolve().name == "000002"
    assert (folder / "last.0/pretrained_model/config.json").read_text(encoding="utf-8") == "old"
    found = last_checkpoint(folder)
    assert found is not None
    assert found.path.name == "000002"


def test_damaged_lines_of_figures_are_left_out(tmp_path: Path) -> None:
    """Whatever a full disk or an editor did to some lines, the others are read, and a resumed run goes on."""
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(b'\xff\xfe\n[]\n5\n{"step": "x"}\n{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert list(read_metrics(tmp_path)) == [{"step": 1, "loss": 2.0}]
