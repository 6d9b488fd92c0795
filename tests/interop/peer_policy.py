# SPDX-License-Identifier: Apache-2.0
"""Run by an interpreter that has LeRobot: opens or makes an ACT checkpoint and drives it with items of a dataset."""

from __future__ import annotations

import json
import sys

import numpy as np
import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.policies.factory import make_policy, make_policy_config, make_pre_post_processors


def main() -> None:
    target, request = sys.argv[1], json.loads(sys.argv[2])
    torch.manual_seed(0)
    dataset = LeRobotDataset("a/b", root=request["root"], video_backend="pyav")
    path = request["checkpoint"]
    if "settings" in request:
        config = make_policy_config("act", **request["settings"])
        policy = make_policy(config, ds_meta=dataset.meta)
        before, after = make_pre_post_processors(config, dataset_stats=dataset.meta.stats)
        for part in (policy, before, after):
            part.save_pretrained(path)
        policy.eval()
    else:
        config = PreTrainedConfig.from_pretrained(path)
        config.pretrained_path = path
        policy = make_policy(config, ds_meta=dataset.meta)
        before, after = make_pre_post_processors(config, pretrained_path=path)
    policy.reset()
    arrays = {}
    for step in range(request["steps"]):
        batch = before({key: value for key, value in dataset[step].items() if key.startswith("observation.")})
        with torch.inference_mode():
            action = policy.select_action(batch)
        arrays[f"{step}|policy_action"] = action.numpy()
        arrays[f"{step}|action"] = after(action).numpy()
    facts = {"parameters": sum(p.numel() for p in policy.parameters()), "type": config.type}
    np.savez(target, facts=np.array(json.dumps(facts)), **arrays)


if __name__ == "__main__":
    main()
