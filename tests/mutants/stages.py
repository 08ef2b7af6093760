"""Where faults are planted, and which tests have to notice: those of the stage, nearest first.

A test of another stage that would notice does not count. Left out are files whose faults change how
fast or on which device something runs, not what it is: their tests need a GPU or a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.faults import Fault, faults

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Stage:
    """A stage: how many faults it gets, the files they are in, the tests that have to notice."""

    name: str
    count: int
    files: dict[str, tuple[str, ...]]  # below svod/, with the tests that are run first
    tests: tuple[str, ...]  # below tests/, run after those

    def tests_of(self, file: str) -> list[str]:
        return list(dict.fromkeys((*self.files[file], *self.tests)))


PLAN = "spec/test_plan_rows_"
SCHEDULE = Stage(
    "schedule",
    60,
    {
        "schedule/cache.py": ("spec/test_schedule_cache_rows.py",),
        "schedule/collapse.py": ("schedule/test_fusion.py", "tensor/test_tensor_indexing.py"),
        "schedule/cut.py": ("schedule/test_fusion.py", "schedule/test_assignment.py"),
        "schedule/dependencies.py": ("spec/test_schedule_rows.py",),
        "schedule/files.py": ("tensor/test_files.py",),
        "schedule/loops.py": ("spec/test_schedule_rows.py",),
        "schedule/normalize.py": ("spec/test_schedule_cache_rows.py",),
        "schedule/overwrites.py": ("schedule/test_assignment.py", "spec/test_schedule_rows.py"),
        "schedule/preschedule.py": ("spec/test_schedule_rows.py",),
        "schedule/rangeify.py": ("schedule/test_nests.py", "schedule/test_pieces.py"),
        "schedule/scan.py": ("tensor/test_scan.py",),
        "schedule/schedule.py": ("spec/test_schedule_cache_rows.py",),
        "schedule/sizes.py": ("tensor/test_run_time_sizes.py",),
        "schedule/sorts.py": ("schedule/test_sorts.py",),
        "schedule/split_reduce.py": ("schedule/test_fusion.py", "schedule/test_down.py"),
        "schedule/views.py": ("schedule/test_pieces.py", "tensor/test_tensor_movement.py"),
    },
    (
        "schedule", "spec/test_rows_by_fault.py", "spec/test_schedule_rows.py",
        "spec/test_schedule_cache_rows.py", "tensor/test_scan.py", "tensor/test_run_time_sizes.py",
        "tensor/test_writes_and_views.py", "tensor/test_files.py", "tensor/test_origins.py",
        "tensor/test_tensor_movement.py", "tensor/test_tensor_indexing.py",
        "tensor/test_tensor_reductions.py", "tensor/test_tensor_linear.py",
        "fuzz/test_programs.py", "fuzz/test_aliases.py", "fuzz/test_chains.py",
    ),
)  # fmt: skip
RUNTIME = Stage(
    "runtime",
    60,
    {
        "runtime/builder.py": (PLAN + "builder.py",),
        "runtime/caches.py": ("spec/test_prepare_rows.py", "runtime/test_plainer.py"),
        "runtime/config.py": ("spec/test_prepare_rows.py", "spec/test_realize_rows.py"),
        "runtime/content.py": ("runtime/test_bind.py", "runtime/test_save.py"),
        "runtime/custom.py": (PLAN + "custom.py",),
        "runtime/effects.py": ("spec/test_prepare_rows.py",),
        "runtime/executor.py": (PLAN + "execution.py", PLAN + "variables.py"),
        "runtime/flat.py": (PLAN + "native.py",),
        "runtime/freeze.py": ("runtime/test_freeze.py",),
        "runtime/instantiate.py": ("spec/test_schedule_rows.py", "spec/test_prepare_rows.py"),
        "runtime/load.py": ("runtime/test_save.py", "runtime/test_trusted_plans.py"),
        "runtime/memory.py": (PLAN + "memory.py",),
        "runtime/ops.py": (PLAN + "records.py",),
        "runtime/order.py": (PLAN + "order.py", PLAN + "execution.py"),
        "runtime/packing.py": (PLAN + "memory.py",),
        "runtime/plan.py": (PLAN + "accessors.py", PLAN + "execution.py"),
        "runtime/ports.py": (PLAN + "accessors.py", "runtime/test_bind.py"),
        "runtime/prepare.py": ("spec/test_prepare_rows.py", "tensor/test_jit_results.py"),
        "runtime/programs.py": ("spec/test_prepare_rows.py",),
        "runtime/save.py": ("runtime/test_save.py",),
        "runtime/variables.py": (PLAN + "variables.py",),
        "runtime/wiring.py": ("runtime/test_bind.py", PLAN + "accessors.py"),
    },
    (
        PLAN + "records.py", PLAN + "builder.py", PLAN + "order.py", PLAN + "execution.py",
        PLAN + "variables.py", PLAN + "native.py", PLAN + "memory.py", PLAN + "custom.py",
        PLAN + "accessors.py", PLAN + "profile.py", "spec/test_prepare_rows.py",
        "spec/test_schedule_rows.py", "spec/test_realize_rows.py", "runtime/test_bind.py",
        "runtime/test_freeze.py", "runtime/test_save.py", "runtime/test_trace.py",
        "schedule/test_rules_of_kernels.py", "spec/test_rows_by_fault.py", "tensor/test_jit.py",
        "tensor/test_run_time_sizes.py",
    ),
)  # fmt: skip
TENSOR = Stage(
    "tensor",
    60,
    {
        "tensor/layers/convolution_graph.py": (
            "tensor/test_transposed_convolutions.py", "tensor/test_convolution_gradients.py",
        ),
        "tensor/core/tensor_core.py": ("tensor/test_tensor_elementwise.py", "tensor/test_files.py"),
        "tensor/ops/cumulative.py": ("tensor/test_tensor_reductions.py",),
        "tensor/ops/elementwise.py": ("tensor/test_tensor_elementwise.py",),
        "tensor/recording/constant_parts.py": ("runtime/test_freeze.py",),
        "tensor/gradients/reverse_mode.py": ("tensor/test_gradient.py",),
        "tensor/gradients/gradient_rules.py": ("tensor/test_gradient.py",),
        "tensor/ops/numpy_interchange.py": ("tensor/test_tensor_creation.py",),
        "tensor/ops/indexing.py": ("tensor/test_tensor_indexing.py",),
        "tensor/recording/jit.py": ("tensor/test_jit.py",),
        "tensor/ops/joining.py": ("array_api/test_shapes.py", "tensor/test_tensor_movement.py"),
        "tensor/ops/movement.py": ("tensor/test_tensor_movement.py",),
        "tensor/ops/padding.py": ("tensor/test_tensor_movement.py", "tensor/test_tensor_layers.py"),
        "tensor/core/slicing.py": ("tensor/test_tensor_movement.py",),
        "tensor/recording/recorded_call.py": ("tensor/test_jit.py",),
        "tensor/recording/realize.py": (
            "spec/test_realize_rows.py", "spec/test_schedule_cache_rows.py",
        ),
        "tensor/recording/recorder.py": ("tensor/test_jit.py",),
        "tensor/ops/reductions.py": ("tensor/test_tensor_reductions.py",),
        "tensor/core/tensor_registry.py": (
            "spec/test_realize_rows.py", "tensor/test_writes_and_views.py",
        ),
        "tensor/recording/scan.py": ("tensor/test_scan.py",),
        "tensor/ops/slice_scatter.py": ("tensor/test_tensor_indexing.py",),
        "tensor/ops/sorting.py": ("tensor/test_tensor_reductions.py",),
        "tensor/core/variable.py": ("tensor/test_run_time_sizes.py",),
        "tensor/views/pending_writes.py": (
            "tensor/test_writes_and_views.py", "tensor/test_assign_views.py",
        ),
    },
    (
        "spec/test_realize_rows.py", "tensor/test_tensor_elementwise.py",
        "tensor/test_tensor_movement.py", "tensor/test_tensor_indexing.py",
        "tensor/test_tensor_reductions.py", "tensor/test_tensor_creation.py",
        "tensor/test_tensor_layers.py", "tensor/test_tensor_linear.py", "tensor/test_gradient.py",
        "tensor/test_jit.py", "tensor/test_jit_results.py", "tensor/test_jit_settings.py",
        "tensor/test_scan.py", "tensor/test_edges.py", "tensor/test_recorded_memory.py",
        "tensor/test_writes_and_views.py", "tensor/test_assign_views.py", "tensor/test_alike.py",
        "tensor/test_run_time_sizes.py", "tensor/test_bound_sizes.py", "runtime/test_freeze.py",
        "tensor/test_convolution_gradients.py", "tensor/test_transposed_convolutions.py",
        "array_api/test_shapes.py",
        "array_api/test_creation.py", "autograd/test_autograd.py", "fuzz/test_programs.py",
        "fuzz/test_aliases.py",
    ),
)  # fmt: skip
STAGES = (SCHEDULE, RUNTIME, TENSOR)


def chosen(seed: int) -> Iterator[tuple[Stage, Fault]]:
    """The faults of a run: of each stage the first of all, in the order of the seed."""
    for stage in STAGES:
        possible: list[Fault] = []
        for file in stage.files:
            possible += faults((ROOT / "svod" / file).read_text(encoding="utf-8"), file)
        possible.sort(key=lambda fault: fault.rank(seed))
        yield from [(stage, fault) for fault in possible[: stage.count]]
