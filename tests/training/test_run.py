"""Training as a user runs it: same seed same model, killed and resumed, on two processes, refused, diverging."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import yaml
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file, save_file

from kenthash import Hasher
from kenthash.cli import main
from kenthash.codes import Codes, hamming
from kenthash.data.splits import make_split
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.model.network import HashNetwork
from kenthash.training.checkpoint import load_checkpoint
from kenthash.training.evaluate import evaluate_run
from kenthash.training.loop import Training
from kenthash.training.proxy_record import read_record
from kenthash.training.recipe import make_recipe, read_recipe
from kenthash.training.run_folder import open_source, write_lock
from kenthash.training.train import train_run
from packs import write_pack
from processes import PATIENCE, after_code, run_here, run_until, wait_until

Array = NDArray[np.int64]
Whole = tuple[Path, dict[str, Any]]  # a run and its metrics

EPOCHS = 6
ENV = os.environ | {"PYTHONUNBUFFERED": "1"}
KENTHASH = [sys.executable, "-m", "kenthash"]


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pack(tmp_path_factory.mktemp("data") / "pack")


def command(pack: Path, out: Path, *more: str) -> list[str]:
    options = ["--data", str(pack), "--out", str(out), "--bits", "16", "--set", f"epochs={EPOCHS}", "--set", "batch=40"]
    return ["train", *options, "--method", "kdph", "--set", "optimizer.lr=0.02", *more]


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(pack: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """An uninterrupted run, with its metrics as printed."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    completed = run_here(*command(pack, out), "--json")
    assert completed.returncode == 0, completed.stderr
    return out, json.loads(completed.stdout)


def test_a_run_reports_and_learns(whole: Whole) -> None:
    out, metrics = whole
    assert {"recipe.yaml", "split.npz", "model", "checkpoint", "history.json", "metrics.json", "events", "figures"} <= {
        path.name for path in out.iterdir()
    }
    assert json.loads((out / "metrics.json").read_text()) == metrics
    assert (metrics["bits"], metrics["protocol"], metrics["ties"], metrics["seed"]) == (16, "honest", "expected", 0)
    history = json.loads((out / "history.json").read_text())
    assert len(history) == EPOCHS and metrics["epoch"] == max(history, key=lambda r: r["score"])["epoch"]
    assert history[-1]["loss"] < history[0]["loss"]
    assert metrics["i2t"]["map"] > 0.5 and metrics["t2i"]["map"] > 0.5  # random codes: about .33 on this pack


def test_tensorboard_reads_the_events(whole: Whole) -> None:
    out, _ = whole
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(out / "events"), {"scalars": 0, "histograms": 0})
    events.Reload()
    losses = events.Scalars("loss/loss")
    assert len(losses) > 1 and losses[-1].value < losses[0].value and losses[-1].step > losses[0].step
    assert len(events.Scalars("kappa/mean")) == len(events.Histograms("kappa/all")) == EPOCHS


def test_own_pairs_are_scored_among_the_query_items(pack: Path, whole: Whole) -> None:
    out, metrics = whole
    hasher, query = Hasher.load(out), np.load(out / "split.npz")["query"]
    offsets = np.load(pack / "text_offsets.npy")
    captions = [(item, row) for item in query for row in range(offsets[item], offsets[item + 1])]
    image = hasher.encode_image_features(np.load(pack / "image.npy")[query])
    text = hasher.encode_text_features(np.load(pack / "text.npy"))

    def first_is_own(queries: Codes, query_items: Array, database: Codes, items: Array) -> float:
        """Recall@1: the share of own rows among the nearest."""
        rows = zip(hamming(queries, database), query_items, strict=True)
        return float(np.mean([(items == item)[row == row.min()].mean() for row, item in rows]))

    items, rows = np.array(captions).T
    for direction, name, expected in (
        ("i2t", "all_captions", first_is_own(image, query, text[rows], items)),
        ("t2i", "all_captions", first_is_own(text[rows], items, image, query)),
        ("i2t", None, first_is_own(image, query, text[offsets[query]], query)),
    ):
        scores = metrics[direction] if name is None else metrics[direction][name]
        assert scores["instance_recall"]["1"] == pytest.approx(expected, abs=1e-6)


def test_killed_anywhere_and_resumed_it_ends_in_the_same_model(pack: Path, whole: Whole, tmp_path: Path) -> None:
    for kill_after in (1, 4):
        out = tmp_path / f"killed{kill_after}"
        run_until(f"epoch {kill_after:3}/", *command(pack, out))
        assert not (out / "model" / "config.json").exists()
        resumed = run_here("train", "--resume", "--out", str(out))
        assert resumed.returncode == 0, resumed.stderr
        assert weights(out) == weights(whole[0])


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
TORCHRUN += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]


# The process LOST is killed when process 0 reports the second epoch; or, if it is process 0, kills itself then.
LOSING = """
import os, pathlib, runpy, signal, sys, time

folder, lost, rank = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1), os.environ["RANK"]
(folder / rank).write_text(str(os.getpid()))

class Stderr:
    def write(self, text):
        if "epoch   2/" in text:
            os.kill(int((folder / lost).read_text()), signal.SIGKILL)
        return sys.__stderr__.write(text)
    def __getattr__(self, name):
        return getattr(sys.__stderr__, name)

sys.stderr = Stderr()
sys.argv[0] = "kenthash"
runpy.run_module("kenthash", run_name="__main__")
"""


@pytest.mark.parametrize(("lost", "resumed_by"), [("0", 2), ("1", 1)])
def test_two_processes_learn_what_one_learns_though_one_is_lost(
    pack: Path, whole: Whole, tmp_path: Path, lost: str, resumed_by: int
) -> None:
    """The loss of a process is reported, and the run goes on by as many processes as there are then."""
    out, script = tmp_path / "run", tmp_path / "losing.py"
    script.write_text(LOSING)
    arguments = [str(script), str(tmp_path), lost, *command(pack, out)]
    ended = subprocess.run([*TORCHRUN, *arguments], env=ENV, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode != 0 and not (out / "model" / "config.json").exists()
    [line] = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert "another process of this run" in line and f"kenthash train --resume --out {out}" in line
    assert "src/kenthash/" not in ended.stderr  # no trace of ours beside torchrun's own report
    resume = ["train", "--resume", "--out", str(out)]
    if resumed_by == 1:
        resumed = run_here(*resume)
    else:
        words = [*TORCHRUN, "-m", "kenthash", *resume]
        resumed = subprocess.run(words, env=ENV, capture_output=True, text=True, timeout=PATIENCE)
    assert resumed.returncode == 0, resumed.stderr
    histories = (json.loads((run / "history.json").read_text()) for run in (whole[0], out))
    for a, b in zip(*histories, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5, abs=1e-5)


def test_the_saved_model_holds_two_heads_and_costs_two_heads(whole: Whole) -> None:
    stored = load_file(whole[0] / "model" / "model.safetensors")
    assert {name.split(".")[0] for name in stored} == {"image_head", "text_head"}
    vectors = np.load(Path(make_recipe(read_recipe(whole[0] / "recipe.yaml")).data) / "image.npy")
    with np.load(whole[0] / "split.npz") as split:  # fewer training items than the sample: the statistics are of all
        expected = vectors[split["train"]].std(axis=0)
    assert stored["image_head.standardise.deviation"].numpy() == pytest.approx(expected, rel=1e-4)
    graph = onnx.load(whole[0] / "model" / "image_head.onnx").graph  # nothing of the proxies
    assert [node.op_type for node in graph.node] == ["Sub", "Div", "Gemm", "Tanh", "Identity"]
    codes = Hasher.load(whole[0]).encode_image_features(np.zeros((10, 32), np.float32))
    assert codes.shape == (10, 2) and codes.dtype == np.uint8


def test_folders_are_not_mixed_up(pack: Path, whole: Whole, tmp_path: Path) -> None:
    recipe = make_recipe({"data": str(pack), "method": "kdph", "bits": 16, "epochs": 1})
    with pytest.raises(UsageError, match="holds a run already"):
        train_run(recipe, whole[0])
    with pytest.raises(UsageError, match="differs in epochs"):
        train_run(recipe, whole[0], resume=True)
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="not empty and not a run"):
        train_run(recipe, tmp_path)


def test_a_run_of_an_earlier_version_is_resumed_if_it_means_the_same(pack: Path, whole: Whole, tmp_path: Path) -> None:
    """A recipe without what was added since is the same run; other settings of a method are not."""
    recipe = make_recipe(read_recipe(whole[0] / "recipe.yaml"))
    written = asdict(recipe)
    del written["label_noise"]
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "recipe.yaml").write_text(yaml.safe_dump(written))
    train_run(recipe, tmp_path / "old", resume=True, quiet=True)
    assert weights(tmp_path / "old") == weights(whole[0])
    del written["settings"]["pairs"]
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "recipe.yaml").write_text(yaml.safe_dump(written))
    with pytest.raises(UsageError, match="in which kdph had other settings"):
        train_run(recipe, tmp_path / "older", resume=True, quiet=True)


def test_a_finished_run_is_left_as_it_is(whole: Whole, tmp_path: Path) -> None:
    """Resumed by a later version that knows more settings, it still says with which ones it was made."""
    out = tmp_path / "finished"
    shutil.copytree(whole[0], out)
    written = yaml.safe_load((out / "recipe.yaml").read_text())
    del written["label_noise"], written["settings"]["pairs"]
    (out / "recipe.yaml").write_text(yaml.safe_dump(written))
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert train_run(make_recipe(written), out, resume=True, quiet=True)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == before


def test_label_noise_swaps_labels_of_training_items_only(pack: Path) -> None:
    """A share of the training items learns with another item's labels; nobody else, and nothing in the data set."""
    source = open_source(make_recipe({"data": str(pack)}), torch.device("cpu"))
    split = make_split(len(source.dataset), 0)
    before = source.dataset.labels.copy()
    recipe = make_recipe({"data": str(pack), "method": "dsph", "bits": 16, "label_noise": 0.4})
    noisy = Training(recipe, source, split.train, torch.device("cpu")).labels.numpy()
    assert np.array_equal(source.dataset.labels, before)
    changed = (noisy != before).any(axis=1)
    others = np.setdiff1d(np.arange(len(before)), split.train)
    assert not changed[others].any() and 0.2 < changed[split.train].mean() <= 0.4  # some of the others' are the same
    assert np.array_equal(noisy.sum(axis=0), before.sum(axis=0))  # every class is as frequent as before
    with pytest.raises(UsageError, match="label_noise"):
        make_recipe({"label_noise": 1.5})


def test_a_folder_in_which_a_killed_run_had_just_begun_can_be_used(pack: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml.partial").write_text("da")
    (tmp_path / "lock").touch()
    assert train_run(make_recipe({"data": str(pack), "method": "dsph", "bits": 16, "epochs": 1}), tmp_path)
    assert (tmp_path / "model" / "config.json").is_file()


def test_one_process_at_a_time_writes_a_run(pack: Path, whole: Whole, tmp_path: Path) -> None:
    out = tmp_path / "run"
    endless = [*KENTHASH, *command(pack, out), "--set", "epochs=1000000"]
    process = subprocess.Popen(endless, env=ENV, stderr=subprocess.DEVNULL)
    try:
        wait_until((out / "checkpoint" / "checkpoint.safetensors").is_file)
        resume = run_here("train", "--resume", "--out", str(out))
        assert resume.returncode == 1 and resume.stderr.count("\n") == 1
        assert f"{out}: another process is writing this run" in resume.stderr
    finally:
        process.kill()
        process.wait()
    with write_lock(out):  # it is free when its process has ended, however it ended
        pass
    with write_lock(whole[0]), pytest.raises(KenthashError, match="another process is writing this run"):
        evaluate_run(whole[0])


def test_divergence_names_the_term(pack: Path, tmp_path: Path) -> None:
    recipe = make_recipe(
        {"data": str(pack), "method": "kdph", "bits": 16, "settings": {"epsilon": 1e30, "irrelevance": "paper"}}
    )
    with pytest.raises(KenthashError, match="the term 'irrelevance' is"):
        train_run(recipe, tmp_path / "run")


def test_proxies_are_stepped_and_captions_drawn(pack: Path) -> None:
    from kenthash.data.pack import FeaturePack
    from kenthash.training.loop import Training
    from kenthash.training.sources import FeatureSource, head_outputs

    device = torch.device("cpu")
    source = FeatureSource(FeaturePack.open(pack), device)
    rows = np.arange(200)
    for method in ("kdph", "dsph"):
        training = Training(make_recipe({"method": method, "bits": 16, "batch": 50}), source, rows, device)
        before = {name: p.detach().clone() for name, p in training.method.named_parameters()}
        training.epoch(0, lambda *_: None)
        moved = {name for name, p in training.method.named_parameters() if not torch.equal(p, before[name])}
        assert moved == before.keys()
        one, two = (head_outputs(training.network, source, rows) for _ in range(2))
        assert np.array_equal(one.text, two.text) and np.array_equal(one.image, two.image)  # dropout off, caption 0


def test_bad_data_is_refused_in_one_line(tmp_path: Path) -> None:
    pack = write_pack(tmp_path / "pack")
    vectors = np.load(pack / "text.npy")
    vectors[7, 3] = np.nan
    np.save(pack / "text.npy", vectors)
    completed = run_here(*command(pack, tmp_path / "run"))
    assert completed.returncode == 1 and completed.stdout == ""
    assert completed.stderr.count("\n") == 1 and "text.npy: row 7 holds NaN" in completed.stderr


def write_labels(pack: Path, labels: NDArray[np.uint8]) -> None:
    np.save(pack / "labels.npy", labels)
    meta = json.loads((pack / "meta.json").read_text())
    (pack / "meta.json").write_text(json.dumps(meta | {"classes": [f"class {c}" for c in range(labels.shape[1])]}))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros((400, 0), np.uint8), "its items have no labels"),
        (np.zeros((400, 3), np.uint8), "its items have no labels"),
        (np.eye(400, dtype=np.uint8), "no two of the 180 training items share a label"),
        (np.ones((400, 1), np.uint8), "all 180 training items with labels have the same ones"),
    ],
    ids=["no classes", "no labels", "each its own", "one for all"],
)
def test_labels_that_teach_nothing_are_refused_before_anything_is_written(
    tmp_path: Path, labels: NDArray[np.uint8], message: str
) -> None:
    pack = write_pack(tmp_path / "pack")
    write_labels(pack, labels)
    with pytest.raises(DataError, match=f"tiny: {message}") as error:
        train_run(make_recipe({"data": str(pack), "method": "kaph", "bits": 16}), tmp_path / "run")
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()


def test_labels_that_leave_nothing_to_measure_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """Only training items share labels: the epoch could not be chosen, or the queries not be scored."""
    pack = write_pack(tmp_path / "pack")
    split = make_split(400, seed=0)
    for part, message in ((split.validation, "no validation item shares a label"), (split.query, "no query shares")):
        labels = np.repeat(np.eye(2, dtype=np.uint8), 200, axis=0)
        labels[part] = 0
        write_labels(pack, labels)
        with pytest.raises(DataError, match=message):
            train_run(make_recipe({"data": str(pack), "method": "kaph", "bits": 16}), tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_labels_are_looked_at_before_pictures_are_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "photos").mkdir()
    names = [f"{i}.png" for i in range(20)]
    rows = [{"file_name": name, "text": "a kite", "labels": [f"label of {name}"]} for name in names]
    for name in names:
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / name)
    (tmp_path / "photos" / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="no two of the 9 training items share a label"):
        train_run(make_recipe({"data": str(tmp_path / "photos"), "method": "kaph", "bits": 16}), tmp_path / "run")
    assert not (tmp_path / "cache").exists() and not (tmp_path / "run").exists()


def test_a_command_that_cannot_be_done_says_so_in_one_line(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("")
    out, inside = str(tmp_path / "run"), str(tmp_path / "taken" / "run")
    for options, code, message in (
        (["--out", out], 2, "no data is named"),
        (["--data", str(pack), "--out", out, "--device", "nonsense"], 2, "device 'nonsense'"),
        (["--data", str(pack), "--out", inside], 1, f"{inside}: Not a directory"),
    ):
        monkeypatch.setattr(sys, "argv", ["kenthash", "train", *options])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        assert end.value.code == code and printed.out == ""
        assert printed.err.startswith("error: ") and message in printed.err and printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("history.json", "[]", "history.json: not the results of a run's epochs"),
        ("history.json", '{"a": 1}', "history.json: not the results of a run's epochs"),
        (
            "recipe.yaml",
            "method: dsph\nepochs: x\n",
            "recipe.yaml: not the recipe of a run: epochs: 'x' is not a whole",
        ),
    ],
)
def test_a_damaged_run_is_refused(whole: Whole, tmp_path: Path, name: str, content: str, message: str) -> None:
    run = shutil.copytree(whole[0], tmp_path / "run")
    (run / name).write_text(content)
    with pytest.raises(DataError, match=message):
        evaluate_run(run, figures=False)


def test_data_of_another_encoder_is_refused(whole: Whole, tmp_path: Path) -> None:
    other = write_pack(tmp_path / "other")
    vectors = np.load(other / "image.npy")
    np.save(other / "image.npy", np.concatenate([vectors, vectors], axis=1))
    with pytest.raises(DataError, match=r"its image vectors have 64 dimensions, but the model of .* takes 32"):
        evaluate_run(whole[0], other)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("bits", "16", "bits is '16'"),
        ("image_dim", -3, "image_dim is -3"),
        ("encoder", None, "encoder is None"),
        ("about", 3, "about is 3"),
        ("colour", 3, "unexpected keyword argument 'colour'"),
        ("image_dim", 33, "not the weights of config.json: .*size mismatch for image_head"),
        ("image_dim", 10**12, "not the weights of config.json: .*size mismatch for image_head"),
        ("text_dim", 10**30, "not the weights of config.json: "),
        ("image_head", {"kind": "mlp", "hidden": 10**11}, "config.json: not a model configuration: head.hidden"),
        ("text_head", {"kind": "mlp", "hidden": 3.5}, "not the weights of config.json: "),
    ],
)
def test_a_damaged_model_is_refused(whole: Whole, tmp_path: Path, name: str, value: object, message: str) -> None:
    model = shutil.copytree(whole[0] / "model", tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {name: value}))
    with pytest.raises(DataError, match=message) as error:
        HashNetwork.load(model)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("bits", "16", "bits is '16'"),
        ("image_dim", 33, r"image_head\.onnx: takes 32 values and gives 16, but config\.json says 33"),
        ("text_dim", 10**30, r"text_head\.onnx: takes 24 values"),
        ("graphs", {"image_head.onnx": "0"}, r"image_head\.onnx: damaged: copy the model again"),
        ("graphs", 3, "graphs is 3"),
    ],
)
def test_graphs_that_are_not_those_of_the_configuration_are_refused(
    whole: Whole, tmp_path: Path, name: str, value: object, message: str
) -> None:
    model = shutil.copytree(whole[0] / "model", tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {name: value}))
    with pytest.raises(DataError, match=message) as error:
        Hasher.load(model)
    assert "\n" not in str(error.value)


def test_json_that_is_nested_too_deep_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 50_000)
    with pytest.raises(DataError, match=r"config\.json: not valid JSON: it is nested too deep"):
        Hasher.load(tmp_path)


# 16 GiB of addresses: also a machine that promises more memory than it has refuses what is beyond that.
LIMITED_MEMORY = "import resource; resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))"


def test_sizes_that_no_machine_has_memory_for_end_in_one_line_and_leave_nothing(pack: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    sizes = ["--set", "head.kind=tanh_mlp", "--set", "head.hidden=1000000"]  # a matrix of 4 TB
    prepared = after_code(LIMITED_MEMORY, [*KENTHASH, *command(pack, out, *sizes)])
    completed = subprocess.run(prepared, env=ENV, capture_output=True, text=True)
    assert completed.returncode == 1 and completed.stderr.startswith("error: there is not enough memory"), (
        completed.stderr
    )
    assert completed.stderr.count("\n") == 1 and not out.exists()


def test_the_example_on_the_card_runs(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (whole[0] / "model" / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(whole[0])
    names = {"vectors": np.ones((3, 24))}  # this model takes vectors; texts it cannot read
    exec(code, names)
    assert names["codes"].shape == (3, 2)


def test_damaged_checkpoints_and_records_are_refused(tmp_path: Path) -> None:
    save_file({"module.weight": torch.ones(2)}, tmp_path / "checkpoint.safetensors")
    with pytest.raises(DataError, match=r"checkpoint\.safetensors: not a checkpoint of this run"):
        load_checkpoint(tmp_path, torch.nn.Linear(2, 2), {})
    rows = tmp_path / "proxies" / "rows.npz"
    rows.parent.mkdir()
    np.savez(rows, train=np.arange(100), validation=np.arange(9))
    rows.write_bytes(rows.read_bytes()[:-50])
    with pytest.raises(DataError, match=r"rows\.npz: not a part of a record"):
        read_record(tmp_path, epochs=1)
