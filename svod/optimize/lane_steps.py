"""How far loads may jump from lane to lane and still become vector loads and shuffles.

`svod.codegen.strided` makes those; the heuristics choose lanes so that it can. These are apart from
`machine`, which a saved plan loads without any table of costs.
"""

from __future__ import annotations

from svod.schedule.costs_cpu import CPU

MAX_STEP = CPU.lane_step  # elements from lane to lane, where as many vectors are read for one ..
MIN_RUN = CPU.lane_run  # .. or with this many copies side by side: a block, transposed in registers
