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

# CHECK-LABEL: func.func @main
# CHECK:         %[[PRODUCT:.*]] = stablehlo.multiply
# CHECK:         %[[SUM:.*]] = call @add(%[[PRODUCT]], %arg1)
# CHECK:         return %[[SUM]]
# CHECK-LABEL: func.func private @add.program
# CHECK-SAME:    %arg0: memref<4x8xf32, "hbm"> {nki.name = "a"}
# CHECK-SAME:    index {nki.program_id = 0 : i64}
# CHECK-COUNT-2: "nki.load"
# CHECK:         "nki.store"
# CHECK-LABEL: func.func private @add(
# CHECK-SAME:    %[[A:.*]]: tensor<4x8xf32>, %[[B:.*]]: tensor<4x8xf32>) -> tensor<4x8xf32>
# CHECK:         bufferization.to_buffer %[[A]] read_only
# CHECK:         bufferization.to_buffer %[[B]] read_only
# CHECK:         %[[OUT:.*]] = memref.alloc() : memref<4x8xf32, "hbm">
# CHECK:         scf.for %[[I:.*]] = %c0 to %c2 step %c1
# CHECK:           func.call @add.program(%{{.*}}, %{{.*}}, %[[OUT]], %[[I]])
# CHECK:         bufferization.to_tensor %{{.*}} restrict writable
# CHECK-NOT:   custom_call

# VALUE: [25. 26. 27. 28. 29. 30. 31. 32.]]
