"""Small faithful copies of the layouts that readers know, written by the tests."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

MIRFLICKR_STRICT = (
    "baby", "bird", "car", "clouds", "dog", "female", "flower", "male", "night", "people", "portrait", "river", "sea",
    "tree",
)  # fmt: skip


def write_picture(path: Path, shade: int = 0, size: tuple[int, int] = (16, 12)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade % 256, shade // 256 % 256, 77)).save(path)
    return path


def write_text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


def write_jsonl(path: Path, rows: Sequence[object]) -> Path:
    return write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def write_coco(
    root: Path, parts: dict[str, dict[int, tuple[list[int], list[str]]]], categories: dict[int, str]
) -> None:
    """parts: train2017 or val2017 -> image id -> (category ids, one an object; captions)."""
    for part, images in parts.items():
        listed = [
            {"license": 3, "file_name": f"{i:012d}.jpg", "height": 12, "width": 16, "coco_url": "", "id": i}
            for i in images
        ]
        objects = [
            {
                "segmentation": [[239.97, 260.24, 222.04, 270.49]],
                "area": 2765.1486500000005,
                "iscrowd": 0,
                "image_id": image,
                "bbox": [199.84, 200.46, 77.71, 70.88],
                "category_id": category,
                "id": 1000 * image + place,
            }
            for image, (category_ids, _) in images.items()
            for place, category in enumerate(category_ids)
        ]
        captions = [
            {"image_id": image, "id": 1000 * image + place, "caption": caption}
            for image, (_, texts) in images.items()
            for place, caption in enumerate(texts)
        ]
        head = {"info": {"description": "COCO 2017 Dataset", "year": 2017}, "licenses": [{"id": 3, "name": "BY-NC-ND"}]}
        names = [{"supercategory": "any", "id": i, "name": name} for i, name in categories.items()]
        write_text(
            root / "annotations" / f"instances_{part}.json",
            json.dumps(head | {"images": listed, "annotations": objects, "categories": names}),
        )
        write_text(
            root / "annotations" / f"captions_{part}.json",
            json.dumps(head | {"images": listed, "annotations": captions}),
        )
        for image in images:
            write_picture(root / part / f"{image:012d}.jpg", image)


def write_mirflickr(photos: Path, annotations: Path, labels: dict[str, list[int]], tags: dict[int, list[str]]) -> None:
    """labels: one of the 24 -> photo numbers; tags: photo number -> tags. Official files end their lines with CR LF."""
    for number, words in tags.items():
        write_picture(photos / f"im{number}.jpg", number)
        write_text(photos / "meta" / "tags" / f"tags{number}.txt", "".join(f"{word}\r\n" for word in words))
    write_text(photos / "doc" / "common_tags.txt", "sky 845\r\n")
    write_text(annotations / "README.txt", "MIRFLICKR-25000 annotations\r\n")
    for label, numbers in labels.items():
        write_text(annotations / f"{label}.txt", "".join(f"{number}\r\n" for number in numbers))
        if label in MIRFLICKR_STRICT:
            write_text(annotations / f"{label}_r1.txt", "".join(f"{number}\r\n" for number in numbers[:1]))


def write_nuswide(root: Path, names: list[str], labels: dict[str, np.ndarray], tags: dict[str, str]) -> None:
    """names: lines of the image list; labels: concept -> 0 or 1 a photo; tags: Flickr id -> tags."""
    write_text(root / "ImageList" / "Imagelist.txt", "".join(f"{name} \r\n" for name in names))
    for concept, column in labels.items():
        lines = "".join(f"{value}\n" for value in column)
        write_text(root / "Groundtruth" / "AllLabels" / f"Labels_{concept}.txt", lines)
    rows = [f"{item}      {words} \n" for item, words in tags.items()]
    write_text(root / "NUS_WID_Tags" / "All_Tags.txt", "".join(rows[:1]) + "\n" + "".join(rows[1:]))


def write_pack(root: Path, items: int = 4, texts: bool = True) -> Path:
    """A pack whose item i has 1 + i % 2 texts and the label i % 3."""
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum([1 + i % 2 for i in range(items)])]).astype(np.int64)
    classes = ["cat", "dog", "kite"]
    meta = {"name": "small", "classes": classes, "encoders": {"image": "a", "text": "b"}, "licence": "CC0"}
    write_text(root / "meta.json", json.dumps(meta))
    write_text(root / "ids.txt", "".join(f"item{i}\n" for i in range(items)))
    np.save(root / "image.npy", rng.normal(size=(items, 5)).astype(np.float16))
    np.save(root / "text.npy", rng.normal(size=(int(offsets[-1]), 7)).astype(np.float32))
    np.save(root / "text_offsets.npy", offsets)
    np.save(root / "labels.npy", np.eye(3, dtype=np.uint8)[np.arange(items) % 3])
    if texts:
        write_jsonl(root / "texts.jsonl", [f"text {row}" for row in range(int(offsets[-1]))])
    return root
