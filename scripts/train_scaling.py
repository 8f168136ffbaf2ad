"""Measure how training an encoder scales with processes: the same epochs by one and by two.

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 1 scripts/train_scaling.py PHOTOS
    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 scripts/train_scaling.py PHOTOS

PHOTOS is a folder with texts and labels. Trains the light encoder on 128 of its pictures, in batches of 64. Prints,
from the first process, the seconds of a later epoch: wall, and its own processor time, which other load changes little.
What one process takes divided by what each of two takes is how much faster two are, each on a processor of its own.
"""

import sys
import time
from pathlib import Path

import torch

from kenthash.data.splits import make_split
from kenthash.encoders import load_encoder
from kenthash.training.distributed import process_group, rank, world_size
from kenthash.training.loop import Training
from kenthash.training.recipe import make_recipe
from kenthash.training.run_folder import open_source

PICTURES, EPOCHS = 128, 3


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: torchrun --nproc-per-node N scripts/train_scaling.py PHOTOS")
    torch.set_num_threads(1)
    device = torch.device("cpu")
    settings = {"spec": "light", "trainable": True}
    recipe = make_recipe({"data": sys.argv[1], "method": "kaph", "batch": 64, "epochs": EPOCHS, "encoder": settings})
    with process_group(device, Path("none")):
        source = open_source(recipe, device, load_encoder("light", trainable=True), lambda *_: None)
        rows = make_split(len(source.dataset), 0, "honest", query=32, train=PICTURES + 16, validation=16).train
        training = Training(recipe, source, rows[:PICTURES], device)
        for number in range(EPOCHS):
            start, start_cpu = time.perf_counter(), time.process_time()
            training.epoch(number, lambda *_: None)
            spent, spent_cpu = time.perf_counter() - start, time.process_time() - start_cpu
            if rank() == 0 and number:
                print(f"{world_size()} processes, epoch {number + 1}: {spent:.1f} s, {spent_cpu:.1f} s of a processor")


if __name__ == "__main__":
    main()
