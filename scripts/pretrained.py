"""Put the model of a finished run into the package, as the pretrained model of its encoder: weights in half precision,
the relevance of its hits, calibrated on the run's validation items, and a card with what it reaches on other data.

    python scripts/pretrained.py runs/clip "coco20k, 2,000 query items of seed 0=packs/coco20k-query" ...

Each further argument is a name and a data set that the model was not trained on, as `kenthash models evaluate` takes
it.
"""

import sys
from dataclasses import replace
from pathlib import Path

from kenthash.encoders.pipeline import features_for
from kenthash.model.calibration import calibrate
from kenthash.model.hasher import Hasher
from kenthash.model.pretrained import ABOUT, FOLDER
from kenthash.model.transfer import Transfer, evaluate_transfer
from kenthash.training.run_folder import Run

CARD = """\
# {name}: a pretrained model of kenthash, {bits} bits

Pictures and words to codes that find each other by Hamming distance. The first {lengths} bits are codes by themselves.

- **Encoder**: {encoder}. Frozen; its vectors go through a hidden layer of {hidden:,} units per tower.
- **Data**: {photos:,} photos of MS COCO train2017 with their {captions:,} captions and the names of their 80
  classes; photos at 256×256, squashed to a square. None of them is in the data of the first tables below.
- **Recipe**: `kenthash/recipes/pretrained.yaml`, seed {seed}, epoch {epoch}, chosen on
  {validation:,} photos that were not trained on.
- **Limits**: it knows what COCO shows, everyday scenes with people, animals, vehicles, food and furniture, and
  English. It cannot read, count or tell who somebody is. Words for what COCO does not show, art styles, and
  fine differences between species or models find little. Captions and photos carry the biases of their makers;
  do not decide about people with it.
- **Licence**: the weights of this folder MIT, as kenthash. COCO's annotations are CC BY 4.0 (cocodataset.org,
  T.-Y. Lin et al. 2014); the photos belong to their Flickr owners and are not here. The encoder has its own
  licences.

## What it reaches

A caption's own photo, and a photo's own caption, among all photos of a set: recall in per cent, ties counted by their
expectation. `real query`: the query's outputs are not signed. Relevance was calibrated on the {validation:,} validation
photos (`kenthash/model/calibration.py` says how).

{tables}
## Train it again

```sh
kenthash train --data COCO --recipe pretrained --set encoder.spec={name} --set epochs={epochs} --out RUN \\
  --set split.query=1000 --set split.train=117000 --set split.validation=1000
python scripts/pretrained.py RUN
```

`COCO` is a folder with the official files of MS COCO 2017, 118,287 photos: many more than were used here.

## Use it

```python
from kenthash import Hasher

hasher = Hasher.load("{name}", bits=64)
codes = hasher.encode_texts(["two dogs and a kite"])  # uint8 [1, 8]
```
"""


def table(title: str, transfer: Transfer) -> str:
    lines = [f"{title}: {transfer.items:,} photos, vectors of {transfer.vectors}.", ""]
    lines += [
        "| bits | text → image R@1 | R@5 | R@10 | real query R@10 | image → text R@10 |",
        "|---|---|---|---|---|---|",
    ]
    for bits, recall in transfer.recall.items():
        forward = " | ".join(f"{recall['t2i'][k]:.1f}" for k in (1, 5, 10))
        lines.append(
            f"| {bits} | {forward} | {transfer.real_valued_query[bits]['t2i']:.1f} | {recall['i2t'][10]:.1f} |"
        )
    if transfer.calibration_error:
        lines += ["", "Expected calibration error of the relevance in words, by bits:"]
        lines.append(
            ", ".join(f"{bits}: {kinds['words']:.3f}" for bits, kinds in transfer.calibration_error.items()) + "."
        )
    return "\n".join([*lines, "", ""])


def main(run: Path, measured: list[str]) -> None:
    opened = Run.open(run, "cpu")
    config, recipe = opened.network.config, opened.recipe
    source = opened.source()
    trained = opened.split.train
    about = {"method": recipe.method, "data": f"{len(trained):,} photos of MS COCO train2017", "seed": recipe.seed}
    opened.network.config = replace(config, about=about)
    folder = FOLDER / config.encoder
    opened.network.save(folder, half=True)
    pack = features_for(Path(recipe.data), config.encoder)
    calibrate(Hasher.load(folder, "cpu"), pack, opened.split.validation).write(folder)
    tables = [
        table(title, evaluate_transfer(folder, Path(data))) for title, _, data in (m.rpartition("=") for m in measured)
    ]
    card = CARD.format(
        name=config.encoder,
        bits=config.bits,
        lengths=", ".join(map(str, config.nested)),
        encoder=ABOUT[config.encoder],
        hidden=config.image_head.hidden,
        photos=len(trained),
        captions=int(source.captions[trained].sum()),
        seed=recipe.seed,
        epoch=config.about["epoch"],
        epochs=recipe.epochs,
        validation=len(opened.split.validation),
        tables="".join(tables),
    )
    (folder / "README.md").write_text(card)
    print(folder, *(f"{file.name} {file.stat().st_size / 1e6:.1f} MB" for file in sorted(folder.iterdir())), sep="\n  ")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
