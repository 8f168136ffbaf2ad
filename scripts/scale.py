"""Print the tables of docs/scale.md: the memory, disk and cost of 64-bit codes, from a laptop to a Milvus cluster.

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
    scan: Figure = Figure(12, "bytes per item", "local code file, form `scan`: code and row")
    compact: Figure = Figure(24, "bytes per item", "form `compact`: and a slot of 3 bytes in each of 4 tables")
    fast: Figure = Figure(56, "bytes per item", "form `fast`: and a copy of the code beside each slot")
    wide: Figure = Figure(4, "bytes per item", "`compact` and `fast` beyond 2^24 items: a fourth byte of each slot")
    tables: Figure = Figure(131072, "items", "the least that have tables; fewer are scanned in every form")
    sqlite: Figure = Figure(184, "bytes per item", "measured: the local store, 200,000 items")
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
        each = (F.code.value, F.scan.value, compact, fast, F.sqlite.value, F.postgres.value)
        rows.append([f"{items:,}", *(size(items * per_item) for per_item in each)])
    return table(["items", "codes alone", "`scan`", "`compact`", "`fast`", "SQLite file", "PostgreSQL"], rows)


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
        ("### One machine", one_machine()),
        ("### A Milvus cluster: bytes and cost", cluster_bytes()),
        ("### A Milvus cluster: time", cluster_time()),
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
