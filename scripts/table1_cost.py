"""What the paper's Table 1 costs on one GPU: work, memory and hours, by arithmetic and counted on this computer.

    python scripts/table1_cost.py
    python scripts/table1_cost.py --pictures-per-second 1500 --price 2.5 --skip-measuring

Every method of the table is trained at every length on every benchmark, with the recipe of that benchmark. A GPU
reaches a share of what its maker's sheet says (--utilisation). Pictures have to be decoded and cropped too, in every
epoch, and with a small CLIP that decides: give the rate that your computer reaches to see the hours that it takes.
"""

import argparse

from kenthash.bench.cost import GPUS, Cost, RunCost, arithmetic, measure, run_cost
from kenthash.encoders.openclip import OpenClipEncoder
from kenthash.encoders.torchvision_shim import import_torchvision
from kenthash.studies.published import published_figures
from kenthash.training.recipe import Recipe, find_recipe, make_recipe, read_recipe

CHUNKS = (0, 32, 8)
GIGA = 1e9
QUICK = "-quickgelu"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--utilisation", type=float, default=0.35, help="share of the sheet's speed (default: .35)")
    parser.add_argument("--pictures-per-second", type=float, default=0.0, help="that this computer decodes")
    parser.add_argument("--price", type=float, default=0.0, help="of an hour of the GPU, in any currency")
    parser.add_argument("--skip-measuring", action="store_true", help="only arithmetic, which needs a second")
    options = parser.parse_args()
    paper = published_figures()
    recipes = {name: make_recipe(read_recipe(find_recipe(f"kdph-{name}"))) for name in paper.items}
    spec = next(iter(recipes.values())).encoder.spec
    counted, cost = costs(spec, not options.skip_measuring)
    print(f"{spec}: {cost.weights / 1e6:.0f} million weights")
    print(f"a pair forward, by arithmetic: {cost.flops / GIGA:.2f} GFLOP, keeps {cost.kept_bytes / 1e6:.1f} MB")
    if counted is not None:
        print(f"              counted here: {counted.flops / GIGA:.2f} GFLOP, keeps {counted.kept_bytes / 1e6:.1f} MB")
    batch = next(iter(recipes.values())).batch
    for chunk in CHUNKS:
        what = f"encoder.chunk={chunk}" if chunk else "the whole batch"
        memory, work = (counted or cost).memory(batch, chunk) / GIGA, cost.step_flops(batch, chunk) / 1e12
        print(f"a step of {batch} pairs, {what}: {memory:.1f} GB, {work:.1f} TFLOP")
    for gpu in GPUS:
        speed, pairs = gpu.teraflops * 1e12 * options.utilisation, (counted or cost).pairs(gpu)
        milliseconds = 1000 * cost.step_flops(batch, 0) / speed
        print(f"  {gpu.name:<9} {milliseconds:4.0f} ms; its {gpu.gigabytes} GB hold {pairs:,} pairs at once")
    table(cost, recipes, options)


def costs(spec: str, count: bool) -> tuple[Cost | None, Cost]:
    """Counted on a network with random weights, and by arithmetic."""
    import_torchvision()
    import open_clip

    name, _, tag = spec.removeprefix("openclip:").partition("/")
    if tag == "openai" and not name.endswith(QUICK):  # these weights were trained with it
        name += QUICK
    encoder = OpenClipEncoder(name, trainable=True, pretrained=False)
    weights = sum(p.numel() for p in encoder.parameters() if p.requires_grad)
    by_formulas = arithmetic(open_clip.get_model_config(name), weights, name.endswith(QUICK))
    return measure(encoder) if count else None, by_formulas


def table(cost: Cost, recipes: dict[str, Recipe], options: argparse.Namespace) -> None:
    paper = published_figures()
    total = {gpu.name: 0.0 for gpu in GPUS}
    bound = dict(total)
    for name, recipe in recipes.items():
        run: RunCost = run_cost(cost, recipe, paper.items[name])
        number = len(paper.map[name]) * len(paper.bits)
        print(
            f"\n{name}, {paper.items[name]:,} items: {number} runs of {run.steps:,} steps; each decodes "
            f"{(run.training_pictures + run.other_pictures) / 1e6:.2f} million pictures"
        )
        for gpu in GPUS:
            alone = run.hours(gpu, options.utilisation)
            real = run.hours(gpu, options.utilisation, options.pictures_per_second)
            needed = (run.training_pictures + run.other_pictures) / (3600 * alone)
            total[gpu.name] += number * alone
            bound[gpu.name] += number * real
            print(f"  {gpu.name:<9} a run {60 * alone:6.1f} min, if {needed:6,.0f} pictures are decoded per second")
    print(f"\nTable 1 whole, at {options.utilisation:.0%} of the speed on the makers' sheets (--utilisation)")
    for gpu in GPUS:
        hours = bound[gpu.name]
        line = f"  {gpu.name:<9} {total[gpu.name]:7.1f} h of computing"
        if options.pictures_per_second:
            line += f", {hours:7.1f} h at {options.pictures_per_second:,.0f} pictures per second"
        print(line + (f", at {options.price:g} an hour {options.price * hours:,.0f}" if options.price else ""))


if __name__ == "__main__":
    main()
