"""What GPU kernels are taken to cost: one table, each number with its unit and where it is from.

A number is `hardware` (it follows from a size or limit that manuals state) or an `estimate`: a
choice that nothing has measured by itself. Numbers that say what is possible rather than what it
costs (shapes of instructions, search ranges, numbers of scratch memories) stay beside their code.
"""

from __future__ import annotations

from dataclasses import dataclass

from svod.schedule.costs import Costs, cost


@dataclass(frozen=True, init=False, repr=False, eq=False)  # made in a fifth of the time
class GpuCosts(Costs):
    """Costs and limits of GPUs of NVIDIA."""

    repeated_elements: int = cost(1 << 20, "elements", "estimate: about what a launch takes")
    sort_words: int = cost(
        8192, "words per block", "hardware: 64-bit words and their counts that shared memory holds"
    )
    sort_dealt_words: int = cost(
        4096, "words per block", "estimate: enough blocks for all multiprocessors"
    )
    short_sort_words: int = cost(
        256, "words per row", "estimate: shorter rows leave threads of a block idle"
    )
    joined_sort_words: int = cost(2048, "words per block", "estimate: rows that share a block")
    resident_blocks: int = cost(
        264, "blocks of 1024 threads", "hardware: two for each of 132 multiprocessors (H200)"
    )
    kept_row: int = cost(
        1 << 15, "elements per row", "hardware: 1024 threads keep 32 each in registers"
    )
    scatter_rows: int = cost(32, "rows", "estimate: a warp's worth of rows that never meet")
    short_scatter: int = cost(2048, "steps per row", "estimate: as long as one more launch")
    scatter_sort_from: int = cost(4096, "steps", "estimate: from which a sort of places pays")
    scatter_part: int = cost(
        128, "steps per part", "estimate: parts that warps add up on their own"
    )
    scatter_wide: int = cost(
        32, "neighbours per place", "hardware: a warp writes 32 neighbours at once"
    )
    most_window_bytes: int = cost(
        1 << 30, "bytes", "estimate: memory that copies of windows may take"
    )
    window_work: int = cost(
        1 << 24, "multiplications", "estimate: less is over before a copy would pay"
    )
    operand_work: int = cost(
        1 << 20, "multiplications", "estimate: less is over before a copy would pay"
    )
    line: int = cost(128, "bytes", "hardware: a step of a tile, one row of swizzled shared memory")
    few_rows: int = cost(3, "rows", "estimate: fewer are faster by threads that read all rows")
    window_tile_work: int = cost(
        1 << 22, "multiplications", "estimate: less is over before tiles fill the GPU"
    )
    window_apart: int = cost(
        4, "elements between neighbours", "estimate: of a line that is read in vain"
    )
    window_row: int = cost(16, "neighbours", "estimate: shorter rows waste copies")
    attention_width: int = cost(
        128, "elements of a head", "hardware: registers hold no more beside two products"
    )
    used_products: float = cost(
        0.2, "share of a tile's products", "estimate: the rest is computed in vain"
    )
    box_work: int = cost(
        1 << 24, "multiplications", "estimate: less is over before a pipeline is full"
    )
    box_stored: int = cost(8, "neighbours", "hardware: 16 bytes of 16-bit numbers")
    scan_vectors: int = cost(4, "vectors per thread", "estimate: loads in flight")
    block: int = cost(
        256, "threads", "estimate: whole warps, and several blocks per multiprocessor"
    )
    unroll: int = cost(4, "loads", "estimate: loads in flight from one thread")
    row_vectors: int = cost(8, "vectors per thread", "estimate: registers that hold a row")
    row_outputs: int = cost(16, "outputs per thread", "estimate: that read the same long row")
    row_sums: int = cost(128, "registers", "hardware: of 255 per thread")
    far_row: int = cost(
        48 << 10, "bytes", "hardware: a part of the first cache beside shared memory"
    )
    shared_row: int = cost(16, "elements", "estimate: fewer are summed by one thread")
    part_vectors: int = cost(
        4, "vectors per thread", "estimate: of a row that several blocks write"
    )
    full_threads: int = cost(
        2048, "threads per multiprocessor", "hardware: CUDA, compute capability 9.0"
    )
    tile_threads: int = cost(256, "threads", "estimate: two groups of four warps")
    tile_rows: int = cost(3, "rows", "estimate: fewer are faster by threads")
    tile_band: int = cost(8, "rows of tiles", "estimate: what they share stays in the second cache")
    small_tile: float = cost(0.8, "speed of a large tile", "estimate: of one of a quarter")
    lone_tile: float = cost(
        0.9,
        "share of multiprocessors",
        "estimate: one 128 x 128 tile each is as fast as small ones",
    )
    scatter_warps: int = cost(8, "warps per block", "estimate: each with places of its own")
    scatter_many_warps: int = cost(64, "warps", "estimate: more than a block has")
    scatter_row: int = cost(1 << 15, "bytes", "hardware: of shared memory")
    scatter_long_row: int = cost(1 << 15, "elements", "estimate: longer rows are split")
    histogram_bytes: int = cost(1 << 15, "bytes", "hardware: of shared memory")
    scatter_steps: int = cost(8, "steps per part", "estimate: at least")
    scatter_step: int = cost(
        18000, "looks times multiprocessors", "estimate: of a step, in looks at one of another part"
    )


GPU = GpuCosts()
