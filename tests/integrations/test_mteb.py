"""A hasher as a model of MTEB, on a task of pictures and captions that are made here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from components import need
from processes import PATIENCE

# In a process of its own, which may not ask any hub: the library looks for data and models there when it can.
TASK = """
import json, sys
from pathlib import Path

import mteb
import numpy as np
import torch
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskMetadata
from PIL import Image

from kenthash import Hasher, Index
from kenthash.integrations.mteb_model import HasherModel
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.network import HashNetwork

folder = Path(sys.argv[1])
head = HeadConfig()
torch.manual_seed(0)
HashNetwork(HasherConfig(64, 1280, 384, head, head, "light")).save(folder / "model")
hasher = Hasher.load(folder / "model")
pictures = [
    Image.fromarray(np.random.default_rng(i).integers(0, 256, (8, 8, 3), np.uint8)).resize((90, 60)) for i in range(12)
]
texts = [f"number {i}" for i in range(12)]


class Pairs(AbsTaskRetrieval):
    metadata = TaskMetadata(
        name="LocalPairs", description="Pictures by captions", type="Any2AnyRetrieval", category="t2i",
        modalities=["text", "image"], eval_splits=["test"], eval_langs=["eng-Latn"], main_score="ndcg_at_10",
        dataset={"path": "local/pairs", "revision": "1"}, reference=None, date=None, domains=None,
        task_subtypes=None, license=None, annotations_creators=None, dialect=None, sample_creation=None,
        bibtex_citation=None,
    )

    def load_data(self, *args, **kwargs):
        pairs = RetrievalSplitData(
            corpus=Dataset.from_dict({"id": [f"p{i}" for i in range(12)], "image": pictures}),
            queries=Dataset.from_dict({"id": [f"q{i}" for i in range(12)], "text": texts}),
            relevant_docs={f"q{i}": {f"p{i}": 1} for i in range(12)},
            top_ranked=None,
        )
        self.dataset = {"default": {"test": pairs}}
        self.data_loaded = True


figures = {}
for real in (True, False):
    result = mteb.evaluate(HasherModel(hasher, real), Pairs(), cache=None, co2_tracker=False)
    scores = result.task_results[0].scores["test"][0]
    figures["real" if real else "codes"] = [scores[f"recall_at_{k}"] for k in (1, 5, 10)]
with Index.create(folder / "a.kh", bits=64) as index:
    index.add([f"p{i}" for i in range(12)], hasher.encode(pictures))
    hits = index.search(hasher.query_texts(texts), k=10)
    ranks = [h.ids.index(f"p{i}") if f"p{i}" in h.ids else 99 for i, h in enumerate(hits)]
figures["index"] = [float(np.mean([rank < k for rank in ranks])) for k in (1, 5, 10)]
print(json.dumps(figures))
"""


def test_mteb_measures_what_the_index_finds(tmp_path: Path) -> None:
    need("mteb")
    settings = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub"), "MTEB_CACHE": str(tmp_path / "mteb")}
    words = [sys.executable, "-c", TASK, str(tmp_path)]
    completed = subprocess.run(words, env=os.environ | settings, capture_output=True, text=True, timeout=PATIENCE)
    assert completed.returncode == 0, completed.stderr[-3000:]
    figures = json.loads(completed.stdout.splitlines()[-1])
    assert figures["real"] == pytest.approx(figures["index"], abs=1e-4)  # real-valued queries hardly ever tie
    assert figures["codes"][2] > 0
