"""What CPU kernels are taken to cost: one table, each number with its unit and where it is from.

A number is `hardware` (it follows from a size or limit that manuals state), `measured` (`svod tune
machine` measures it, by the name that follows, and prints both), or an `estimate`: a choice that
nothing has measured by itself. Numbers that say what is possible rather than what it costs (shapes
of instructions, search ranges, numbers of scratch memories) stay beside their code.
"""

from __future__ import annotations

from dataclasses import dataclass

from svod.schedule.costs import Costs, cost


@dataclass(frozen=True, init=False, repr=False, eq=False)  # made in a fifth of the time
class CpuCosts(Costs):
    """Costs and limits of processors."""

    store: float = cost(6.0, "element operations per element", "measured: store")
    kernel: float = cost(2000.0, "element operations per kernel", "measured: kernel")
    most_uses: int = cost(
        6, "users of a value", "estimate: code grows with each use, and registers run out"
    )
    inner_work: int = cost(
        1 << 16, "element operations per result", "estimate: a row that stays in the first cache"
    )
    band_column: int = cost(
        100,
        "element operations per score",
        "estimate: exponentials and two passes over a row of scores",
    )
    plain_product: int = cost(
        4, "times an element of a tile", "estimate: of a product's element in plain loops"
    )
    heavy_terms: int = cost(4, "terms of a sum", "estimate: fewer products are added at once")
    load: float = cost(1.0, "element operations per element", "measured: load")
    column_sum_from: int = cost(
        1 << 22, "elements", "hardware: a piece of this many float32 exceeds the cache of a core"
    )
    column_sum_pieces: int = cost(8, "pieces of rows", "estimate: streams that hardware follows")
    sort_words: int = cost(
        1 << 14, "words per core", "estimate: words of a row that stay in the first caches"
    )
    sort_dealt_words: int = cost(
        1 << 16, "words per core", "estimate: work that outweighs a step over all cores"
    )
    sort_kept_part: int = cost(4, "part of a row, 1/n", "estimate: a selection pays up to here")
    split_from: int = cost(
        1 << 16, "elements per result", "estimate: ten microseconds of reading, as THREAD_WORK"
    )
    split_few_results: int = cost(
        256, "results", "estimate: more results fill the cores by themselves"
    )
    split_pieces: int = cost(
        64, "partial results", "estimate: several for each core of a large machine"
    )
    whole_rows: int = cost(16, "results", "estimate: cores have a row each from here")
    shared_cache: int = cost(
        16 << 20, "bytes", "hardware: share of a last-level cache that survives to the next kernel"
    )
    band_row: int = cost(
        1 << 18, "bytes per row of scores", "hardware: half of a second cache of 512 KiB"
    )
    packed_operations: int = cost(
        6, "operations per operand", "estimate: rows are packed again for every block of columns"
    )
    block_products: int = cost(
        64, "products of words", "estimate: code of a step that stays in the cache of instructions"
    )
    block_rows: int = cost(
        8, "rows of a tile", "hardware: sums of two kinds and words of weights in 32 registers"
    )
    packed_side: int = cost(
        16, "rows, columns or steps", "estimate: smaller operands are read where they are"
    )
    packed_depth: int = cost(
        8192, "steps of a sum", "hardware: a panel of this depth fills scratch memory"
    )
    scanned_operations: int = cost(
        12, "operations per element", "estimate: computed twice in a scan of two passes"
    )
    lane_step: int = cost(
        4, "elements from lane to lane", "estimate: as many vectors are read for one"
    )
    lane_run: int = cost(
        4, "copies side by side", "estimate: a block of four is transposed in registers"
    )
    line: int = cost(64, "bytes", "hardware: a cache line")
    page: int = cost(
        4096, "bytes", "hardware: rows this far apart map to the same sets of the first cache"
    )
    used_columns: float = cost(0.9, "share of columns", "estimate: packing borders wastes the rest")
    kept_row: int = cost(256 << 10, "bytes", "hardware: half of a second cache of 512 KiB")
    placed_row: int = cost(1 << 20, "bytes", "hardware: a second cache")
    short_row: int = cost(8, "elements", "estimate: shorter rows are written out")
    band_rows: int = cost(16, "rows per band", "estimate: two tiles of eight")
    band_bytes: int = cost(
        512 << 10, "bytes of scores", "hardware: half of a second cache of 1 MiB"
    )
    swept_rows: int = cost(8, "rows per step", "hardware: streams that prefetchers follow")
    swept_bytes: int = cost(32 << 10, "bytes of sums", "hardware: a first cache")
    swept_vectors: int = cost(4, "vectors", "estimate: chains of additions in flight")
    band_lanes: int = cost(32, "lanes", "estimate: more spills registers in an exponential")
    channel_accumulators: int = cost(
        28, "registers", "hardware: of 32; the broadcast operand comes from memory"
    )
    channel_step: float = cost(0.25, "cycles per step", "estimate: beside its multiply-adds")
    channel_code: float = cost(
        0.0007,
        "share of the cycles per accumulator",
        "estimate: time to compile and to fetch the code",
    )
    memory_bytes: int = cost(6, "bytes per cycle and core", "measured: memory_bytes")
    channel_turn: int = cost(
        120, "cycles per vector of lanes", "estimate: a transposition in registers and its stores"
    )
    crossed_block: int = cost(16, "elements and lanes", "hardware: vectors of 64 bytes of float32")
    crossed_blocks: int = cost(
        8, "blocks along a row", "estimate: whole cache lines of rows that do not stay in cache"
    )
    thread_work: float = cost(300_000.0, "element operations", "measured: thread_work")
    even_enough: float = cost(
        1.03, "ratio of work", "estimate: outer loops lose this much to an uneven split"
    )
    pack: float = cost(4.0, "multiply-adds per element", "estimate: a load, a store and the offset")
    finish_bytes: int = cost(128 << 10, "bytes of sums", "hardware: a part of a second cache")
    unroll: int = cost(4, "steps", "estimate: more only grows the code")
    accumulators: int = cost(24, "registers", "hardware: of 32; the rest holds operands")
    full_tiles: int = cost(8, "tiles", "estimate: the rest is an eighth of the work at most")
    stream_steps: int = cost(
        128, "steps of a sum", "estimate: one row at a time keeps memory busy from here"
    )
    tile_reuse: int = cost(
        8, "multiply-adds per operand", "estimate: more needs registers that operands have"
    )
    heavy_body: int = cost(
        40,
        "operations per element",
        "estimate: enough to hide latencies with one register per value",
    )
    panel_accumulators: int = cost(24, "registers", "hardware: of 32; the rest holds operands")
    panel_bytes: int = cost(22, "bytes per cycle", "measured: panel_bytes")
    fma_latency: int = cost(4, "cycles", "measured: fma_latency")
    chain_slack: int = cost(
        2, "cycles", "estimate: two multipliers do 0.9 with 10 chains of what they do with 12"
    )
    dot_latency: int = cost(
        10, "cycles", "hardware: 6 for pairs of bfloat16, and chains for what else delays one"
    )
    panel_vectors: int = cost(
        4, "vectors per panel", "estimate: with more, the register allocator spills"
    )
    line_vectors: int = cost(
        7, "vectors per panel of whole lines", "estimate: with more, the register allocator spills"
    )
    pack_cycles: int = cost(5, "cycles per vector", "estimate: a load, a store and the offset")
    transposed_rows: int = cost(
        128, "rows", "estimate: packing is cheaper than dot products from here"
    )
    strip_bytes: int = cost(1 << 19, "bytes", "hardware: half of a second cache of 1 MiB")
    strip_panels: int = cost(
        4, "panels per block", "estimate: rows are read often enough from here"
    )
    part_steps: int = cost(
        256, "steps of the depth", "hardware: rows of a tile stay in the first cache"
    )
    row_packing: int = cost(5, "times a panel's element", "estimate: rows are packed across memory")
    light_epilogue: int = cost(
        12, "operations per result", "estimate: every part of the depth makes them"
    )
    # of one operation on one element, where adding is 1
    exponential: float = cost(4.0, "element operations", "measured: exponential")
    hyperbolic: float = cost(6.0, "element operations", "measured: hyperbolic")
    division: float = cost(1.5, "element operations", "measured: division")
    reciprocal_root: float = cost(2.0, "element operations", "measured: reciprocal_root")
    power: float = cost(15.0, "element operations", "measured: power")
    arc_tangent: float = cost(10.0, "element operations", "measured: arc_tangent")
    integer_division: float = cost(20.0, "element operations", "measured: integer_division")


CPU = CpuCosts()
