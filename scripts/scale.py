"""Print the tables of docs/scale.md: encoding, memory, disk, time and cost, from a laptop to a Milvus cluster.

    python scripts/scale.py            print them
    python scripts/scale.py --write    put them into docs/scale.md

Everything follows from the figures below. Change them to yours (the prices above all) and run it again.
"""

import sys
from dataclasses import dataclass, fields
from math import ceil
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
START, END = "<!-- scripts/scale.py prints from here -->", "<!-- to here -->"
GB = 10**9


@dataclass(frozen=True)
class Figure:
    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class Figures:
    code: Figure = Figure(8, "bytes", "64 bits")
    id: Figure = Figure(24, "bytes", "chosen: `pictures/2024/000000.jpg`")
    metadata: Figure = Figure(97, "bytes", "chosen: place, year, two labels, author, note, as JSON")
    store: Figure = Figure(22, "bytes per item", "measured: what the local store adds to these three, 200,000 items")
    scan: Figure = Figure(12, "bytes per item", "local code file, form `scan`: code and row")
    compact: Figure = Figure(24, "bytes per item", "form `compact`: and a slot of 3 bytes in each of 4 tables")
    fast: Figure = Figure(56, "bytes per item", "form `fast`: and a copy of the code beside each slot")
    wide: Figure = Figure(4, "bytes per item", "`compact` and `fast` beyond 2^24 items: a fourth byte of each slot")
    tables: Figure = Figure(131072, "items", "the least that have tables; fewer are scanned in every form")
    postgres: Figure = Figure(265, "bytes per item", "measured: table and primary key, 200,000 items")
    milvus: Figure = Figure(300, "bytes per item", "planned; four loads of 600,000 items took 149 to 359 bytes each")
    compare: Figure = Figure(3.9, "ns of a core per code", "measured: Milvus 2.3.5, BIN_FLAT, 600,000 codes, CPU time")
    segment: Figure = Figure(512, "MiB", "Milvus 2.3: `dataCoord.segment.maxSize`")
    shards: Figure = Figure(16, "", "Milvus 2.3: `proxy.maxShardNum`, the most of a collection")
    node_cores: Figure = Figure(16, "cores", "chosen: a query node")
    node_memory: Figure = Figure(128, "GB", "chosen: of a query node")
    usable: Figure = Figure(0.75, "", "chosen: share of a node's memory that holds data")
    other: Figure = Figure(4, "nodes", "chosen: for coordinators, proxies, data and index nodes, etcd and the log")
    node_price: Figure = Figure(1.00, "dollars per hour", "assumed: put in your provider's price of such a node")
    storage_price: Figure = Figure(0.023, "dollars per GB and month", "assumed: object storage")
    hours: Figure = Figure(730, "hours per month", "365 days of 24 hours, divided by 12")
    probed: Figure = Figure(1 / 64, "", "chosen: share of its lists that an approximate search compares")
    clip: Figure = Figure(0.12, "s of a core per picture", "measured: model `clip`, a processor with VNNI")
    clip_plain: Figure = Figure(0.24, "s of a core per picture", "twice `clip`, as measured when VNNI came into use")
    light: Figure = Figure(0.0077, "s of a core per picture", "measured: model `light`, `kenthash bench hash`")
    ray: Figure = Figure(0.97, "", "measured: work of plain processes / that of Ray, `kenthash bench hash`")
    laptop_cores: Figure = Figure(4, "cores", "chosen: a laptop, on which the work is plain processes")
    gpu_rate: Figure = Figure(1000, "pictures per second", "assumed, not measured: `clip` on one GPU; put in yours")
    gpu_price: Figure = Figure(
        1.50, "dollars per hour", "assumed: a machine with one GPU and the cores to decode for it"
    )
    first_bits: Figure = Figure(64, "bits", "chosen: two stages, what finds candidates")
    all_bits: Figure = Figure(256, "bits", "chosen: two stages, what ranks them")
    real_requests: Figure = Figure(
        2, "", "chosen: requests until a real-valued query is proven; each asks for 4 times as many"
    )


F = Figures()


def size(number: float) -> str:
    for unit, scale in ("TB", 1e12), ("GB", 1e9), ("MB", 1e6):
        if number >= scale:
            return f"{number / scale:,.1f} {unit}"
    return f"{number / 1e3:,.0f} kB"


def seconds(time: float) -> str:
    return f"{time:,.1f} s" if time >= 1 else f"{time * 1e3:,.1f} ms"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def figures() -> str:
    rows = []
    for field in fields(F):
        figure: Figure = getattr(F, field.name)
        rows.append([f"{field.name}: {figure.source}", f"{figure.value:.10g} {figure.unit}".strip()])
    return table(["figure, and where it is from", "value"], rows)


def form_bytes(items: int, form: Figure) -> float:
    """Bytes per item of a form with tables."""
    if items < F.tables.value:
        return F.scan.value
    return form.value + (F.wide.value if items > 1 << 24 else 0)


def one_machine() -> str:
    """Items on one machine: memory for each form, and the size of the file or table."""
    rows = []
    for items in 10**5, 10**6, 10**7, 10**8, 10**9:
        compact, fast = form_bytes(items, F.compact), form_bytes(items, F.fast)
        sqlite = F.code.value + F.id.value + F.metadata.value + F.store.value
        each = (F.code.value, F.scan.value, compact, fast, sqlite, F.postgres.value)
        rows.append([f"{items:,}", *(size(items * per_item) for per_item in each)])
    return table(["items", "codes alone", "`scan`", "`compact`", "`fast`", "SQLite file", "PostgreSQL"], rows)


@dataclass(frozen=True)
class Machine:
    """Something that encodes: its rate in pictures per second, and its price per hour; 0 where it is at hand."""

    name: str
    rate: float
    price: float

    def hours(self, pictures: float, machines: int = 1) -> float:
        return pictures / (self.rate * machines) / 3600

    def cost(self, pictures: float) -> float:
        return self.hours(pictures) * self.price


def node_rate(seconds: Figure) -> float:
    """Of a node in a Ray cluster."""
    return F.node_cores.value / seconds.value * F.ray.value


MACHINES = [
    Machine(f"laptop, {F.laptop_cores.value:g} cores, `clip`", F.laptop_cores.value / F.clip.value, 0),
    Machine(f"laptop, {F.laptop_cores.value:g} cores, `light`", F.laptop_cores.value / F.light.value, 0),
    Machine(f"node, {F.node_cores.value:g} cores with VNNI, `clip`", node_rate(F.clip), F.node_price.value),
    Machine(f"node, {F.node_cores.value:g} cores without, `clip`", node_rate(F.clip_plain), F.node_price.value),
    Machine(f"node, {F.node_cores.value:g} cores, `light`", node_rate(F.light), F.node_price.value),
    Machine("one GPU, `clip` (rate assumed)", F.gpu_rate.value, F.gpu_price.value),
]


def duration(hours: float) -> str:
    if hours >= 48:
        return f"{hours / 24:,.1f} days"
    return f"{hours:,.1f} h" if hours >= 1 else f"{hours * 60:,.0f} min"


def encoding() -> str:
    """Pictures to codes: one machine of each type, and a hundred of them."""
    head = ["machine", "pictures per second", "1 million", "cost", "100 million", "cost"]
    head += ["1 billion on 100", "10 billion on 100", "cost"]
    rows = []
    for m in MACHINES:
        costs = [f"${m.cost(pictures):,.2f}" if m.price else "none" for pictures in (10**6, 10**8, 10**10)]
        many = [duration(m.hours(10**9, 100)), duration(m.hours(10**10, 100))] if m.price else ["", ""]
        row = [m.name, f"{m.rate:,.0f}", duration(m.hours(10**6)), costs[0], duration(m.hours(10**8)), costs[1]]
        rows.append([*row, *many, costs[2] if m.price else ""])
    return table(head, rows)


def kinds_of_search() -> str:
    """What real-valued queries and two stages change: a cluster compares codes again in each request."""
    head = ["items", "64 bits", "real-valued query", "codes alone, two stages", "in memory on one machine, `compact`"]
    head += ["beside it, read for candidates"]
    rest = (F.all_bits.value - F.first_bits.value) / 8
    rows = []
    for c in CLUSTERS:
        one = c.work / c.cores
        rows.append(
            [
                f"{c.items:,}",
                seconds(one),
                seconds(F.real_requests.value * one),
                size(c.items * F.all_bits.value / 8),
                size(c.items * form_bytes(c.items, F.compact)),
                size(c.items * rest),
            ]
        )
    return table(head, rows)


@dataclass(frozen=True)
class Cluster:
    items: int

    @property
    def stored(self) -> float:
        return self.items * (F.code.value + F.id.value + F.metadata.value)

    @property
    def segments(self) -> int:
        return ceil(self.stored / (F.segment.value * 2**20))

    @property
    def memory(self) -> float:
        return self.items * F.milvus.value

    @property
    def nodes(self) -> int:
        return ceil(self.memory / (F.node_memory.value * GB * F.usable.value))

    @property
    def cores(self) -> float:
        return self.nodes * F.node_cores.value

    @property
    def work(self) -> float:
        """Seconds of one core for one exact query."""
        return self.items * F.compare.value * 1e-9

    @property
    def price(self) -> float:
        nodes = (self.nodes + F.other.value) * F.node_price.value * F.hours.value
        return nodes + self.stored / GB * F.storage_price.value


CLUSTERS = [Cluster(10**8), Cluster(10**9), Cluster(10**10)]


def cluster_bytes() -> str:
    head = ["items", "in object storage", "segments", "memory", "query nodes"]
    head += ["cost per month", "per month and million items"]
    rows = []
    for c in CLUSTERS:
        millions = c.items / 1e6
        row = [f"{c.items:,}", size(c.stored), f"{c.segments:,}", size(c.memory), f"{c.nodes:,}"]
        rows.append([*row, f"${c.price:,.0f}", f"${c.price / millions:,.2f}"])
    return table(head, rows)


def cluster_time() -> str:
    head = ["items", "cores", "work per query", "one query", "queries per second"]
    head += ["one approximate query", "approximate queries per second"]
    rows = []
    for c in CLUSTERS:
        row = [f"{c.items:,}", f"{c.cores:,.0f}"]
        for share in 1.0, F.probed.value:
            work = c.work * share
            row += [seconds(work)] if share == 1 else []
            row += [seconds(work / c.cores), f"{c.cores / work:,.1f}"]
        rows.append(row)
    return table(head, rows)


def largest() -> str:
    """The sentence that says what ten billion come to."""
    c = CLUSTERS[-1]
    share = F.code.value / F.milvus.value
    return (
        f"{c.items:,} items on {F.shards.value:g} shards are {c.items / F.shards.value:,.0f} items per shard and "
        f"{c.items / c.nodes:,.0f} per query node. The codes themselves are {size(c.items * F.code.value)}, "
        f"{share:.1%} of the memory; without metadata in Milvus the cluster needs "
        f"{size(c.items * (F.milvus.value - F.metadata.value))} instead of {size(c.memory)}."
    )


def page() -> str:
    parts = [
        ("### Encoding", encoding()),
        ("### One machine", one_machine()),
        ("### A Milvus cluster: bytes and cost", cluster_bytes()),
        ("### A Milvus cluster: time", cluster_time()),
        ("### Real-valued queries and two stages", kinds_of_search()),
        ("### Ten billion", largest()),
        ("### The figures used", figures()),
    ]
    return "\n\n".join(f"{title}\n\n{text}" for title, text in parts)


def main() -> None:
    if sys.argv[1:] == ["--write"]:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
        PAGE.write_text(f"{before}{START}\n\n{page()}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    elif sys.argv[1:]:
        sys.exit("usage: python scripts/scale.py [--write]")
    else:
        print(page())


if __name__ == "__main__":
    main()
