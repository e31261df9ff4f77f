# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# RUN: %python %s | nki-opt --link-kernels - | nki-opt - | FileCheck %s
# RUN: %python %s | nki-run --quiet --arg 4x8xf32=arange --arg 4x8xf32=ones --save %t.npz -
# RUN: %python -c "import numpy as np; print(*np.load('%t.npz').values())" | FileCheck --check-prefix=VALUE %s
"""A graph that calls one kernel in the documented form, as text; what linking makes of it, and what it computes."""

import numpy as np

from nki_mlir.frameworks.framework_kernel import FrameworkKernel
from nki_mlir.language.beta import language as nl


def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(0) * 2 + nl.arange(2)[:, None], nl.arange(8)[None, :]
    nl.store(out[i, j], nl.load(a[i, j]) + nl.load(b[i, j]))
    return out


x = np.zeros((4, 8), np.float32)
config, _, _ = FrameworkKernel(func=add, grid=(2,)).dump_config(x, x)
print(f"""
func.func @main(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>) -> tensor<4x8xf32> {{
  %0 = stablehlo.multiply %a, %b : tensor<4x8xf32>
  %1 = stablehlo.custom_call @AwsNeuronCustomNativeKernel(%0, %b) {{
    api_version = 2 : i32, backend_config = "{config}"}}
    : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}}""")

# CHECK-DAG: #[[TILE_I:map[0-9]*]] = affine_map<()[s0] -> (0, 0)>
# CHECK-DAG: #[[ROWS_I:map[0-9]*]] = affine_map<()[s0] -> (s0 * 16)>
# CHECK-LABEL: func.func @main(
# CHECK-SAME:    %[[A:[a-z0-9]+]]: tensor<4x8xf32>, %[[B:[a-z0-9]+]]: tensor<4x8xf32>) -> tensor<4x8xf32>
# CHECK-NEXT:    %[[PRODUCT:.*]] = stablehlo.multiply %[[A]], %[[B]]
# CHECK-NEXT:    %[[SUM:.*]] = call @add(%[[PRODUCT]], %[[B]])
# CHECK-NEXT:    return %[[SUM]]
# The kernel as it is captured, for a program of its grid.
# CHECK-LABEL: func.func private @add.program(
# CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<4x8xf32, "hbm"> {nki.name = "a"},
# CHECK-SAME:    %[[B:[a-z0-9]+]]: memref<4x8xf32, "hbm"> {nki.name = "b"},
# CHECK-SAME:    %[[OUT:[a-z0-9]+]]: memref<4x8xf32, "hbm"> {nki.name = "out", nki.shared = 0 : i64},
# CHECK-SAME:    %[[I:[a-z0-9]+]]: index {nki.program_id = 0 : i64}) attributes {nki.grid = [2], nki.results = [2]}
# CHECK-NEXT:    %[[X:.*]] = memref.alloc() {nki.name = "t1"} : memref<2x8xf32, "sbuf">
# CHECK-NEXT:    "nki.load"(%[[X]], %[[A]], %[[I]])
# CHECK-SAME:      access = [#nki.access<f32, #[[TILE_I]], {{\[\[}}1, 2], [1, 8]]>,
# CHECK-SAME:                #nki.access<f32, #[[ROWS_I]], {{\[\[}}8, 2], [1, 8]]>]
# CHECK-NEXT:    %[[Y:.*]] = memref.alloc() {nki.name = "t2"} : memref<2x8xf32, "sbuf">
# CHECK-NEXT:    "nki.load"(%[[Y]], %[[B]], %[[I]])
# CHECK-NEXT:    %[[SUM:.*]] = memref.alloc() {nki.name = "t3"} : memref<2x8xf32, "sbuf">
# CHECK-NEXT:    "nki.binary"(%[[SUM]], %[[X]], %[[Y]])
# CHECK-SAME:      op = "add"
# CHECK-NEXT:    "nki.store"(%[[OUT]], %[[SUM]], %[[I]])
# CHECK-NEXT:    return
# What the graph calls: all programs, on the graph's tensors.
# CHECK-LABEL: func.func private @add(
# CHECK-SAME:    %[[A:[a-z0-9]+]]: tensor<4x8xf32>, %[[B:[a-z0-9]+]]: tensor<4x8xf32>) -> tensor<4x8xf32>
# CHECK-NEXT:    %[[A_BUFFER:.*]] = bufferization.to_buffer %[[A]] read_only
# CHECK-NEXT:    %[[A_HBM:.*]] = memref.memory_space_cast %[[A_BUFFER]] : {{.*}} to memref<4x8xf32, "hbm">
# CHECK-NEXT:    %[[B_BUFFER:.*]] = bufferization.to_buffer %[[B]] read_only
# CHECK-NEXT:    %[[B_HBM:.*]] = memref.memory_space_cast %[[B_BUFFER]] : {{.*}} to memref<4x8xf32, "hbm">
# CHECK-NEXT:    %[[OUT:.*]] = memref.alloc() : memref<4x8xf32, "hbm">
# CHECK:         scf.for %[[I:[a-z0-9]+]] = %c0 to %c2 step %c1 {
# CHECK-NEXT:      func.call @add.program(%[[A_HBM]], %[[B_HBM]], %[[OUT]], %[[I]])
# CHECK-NEXT:    }
# CHECK-NEXT:    %[[OUT_BUFFER:.*]] = memref.memory_space_cast %[[OUT]]
# CHECK-NEXT:    %[[RESULT:.*]] = bufferization.to_tensor %[[OUT_BUFFER]] restrict writable
# CHECK-NEXT:    return %[[RESULT]]
# CHECK-NOT:   custom_call

# VALUE: [25. 26. 27. 28. 29. 30. 31. 32.]]
