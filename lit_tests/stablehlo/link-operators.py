# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# REQUIRES: cxx
# RUN: rm -rf %t && mkdir %t && %python %s %t > %t/graph.mlir
# RUN: nki-opt --load-library=%t/libgiou.so --link-kernels %t/graph.mlir | FileCheck %s
# RUN: nki-opt --load-library=%t/libgiou.so --link-kernels --stablehlo-to-linalg %t/graph.mlir \
# RUN:   | FileCheck --check-prefix=WAIST %s
# RUN: nki-opt --load-library=%t/libgiou.so --link-kernels --lower-to-isa %t/graph.mlir \
# RUN:   | FileCheck --check-prefix=ISA %s
# RUN: nki-run --load-library=%t/libgiou.so --on=isa --compare=jit --quiet --arg 128x16x4xf32=random:1 \
# RUN:   --arg 128x16x4xf32=random:2 %t/graph.mlir | FileCheck --check-prefix=VALUE %s
# RUN: not nki-opt --link-kernels %t/graph.mlir 2>&1 | FileCheck --check-prefix=ABSENT %s
"""A graph that calls a custom C++ operator and then a kernel, as text; what linking and lowering make of it."""

import sys
from pathlib import Path

import numpy as np

from nki_mlir import customop
from nki_mlir.customop.graph_binding import callee
from nki_mlir.frameworks.framework_kernel import FrameworkKernel
from nki_mlir.language.beta import language as nl

SOURCES = Path(__file__).parents[2] / "examples" / "custom_operators"


def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out


giou = customop.load("giou", [SOURCES / "giou.cpp"], [SOURCES / "giou_shape.cpp"], sys.argv[1], multicore=True).giou
boxes = np.zeros((128, 16, 4), np.float32)
config, _, _ = FrameworkKernel(func=doubled).dump_config(np.zeros((128, 16), np.float32))
print(f"""
func.func @main(%a: tensor<128x16x4xf32>, %b: tensor<128x16x4xf32>) -> tensor<128x16xf32> {{
  %0 = stablehlo.add %a, %b : tensor<128x16x4xf32>
  %1 = stablehlo.custom_call @AwsNeuronCustomOp(%0, %b) {{
    api_version = 2 : i32, backend_config = "{callee(giou, (boxes, boxes)).record.config}"}}
    : (tensor<128x16x4xf32>, tensor<128x16x4xf32>) -> tensor<128x16xf32>
  %2 = stablehlo.custom_call @AwsNeuronCustomNativeKernel(%1) {{
    api_version = 2 : i32, backend_config = "{config}"}} : (tensor<128x16xf32>) -> tensor<128x16xf32>
  return %2 : tensor<128x16xf32>
}}""")

# CHECK-LABEL: func.func @main
# CHECK:         %[[SUM:.*]] = stablehlo.add
# CHECK:         %[[IOU:.*]] = call @giou(%[[SUM]], %arg1)
# CHECK:         %[[TWICE:.*]] = call @doubled(%[[IOU]])
# CHECK:         return %[[TWICE]]
# CHECK-LABEL: func.func private @giou.program(
# CHECK:         "nisa.gpsimd_call"(%arg2, %arg0, %arg1)
# CHECK-SAME:      busy = {{[1-9]}}
# CHECK-SAME:      bytes_in = 65536 : i64, bytes_out = 8192 : i64
# CHECK-SAME:      function = "giou"
# CHECK-SAME:      library = "{{.*}}libgiou.so"
# CHECK-LABEL: func.func private @giou(
# CHECK:         call @giou.program
# CHECK-LABEL: func.func private @doubled.program(
# CHECK-NOT:   custom_call

# WAIST-LABEL: func.func @main(%arg0: memref<128x16x4xf32, "hbm">
# WAIST:         %[[SUM:.*]] = memref.alloc() {{.*}}memref<128x16x4xf32, "hbm">
# WAIST:         linalg.generic
# WAIST:         "nisa.gpsimd_call"(%[[IOU:.*]], %[[SUM]], %arg1)
# WAIST:         %[[PART:.*]] = memref.reinterpret_cast %[[IOU]]
# WAIST:         linalg.generic {{.*}} ins(%[[PART]]

# ISA:         pool {{.*}}S[{{[0-9]+}}] ({{.*}})>={{[0-9]+}} GPSIMD_CALL library="{{.*}}libgiou.so" function=giou
# ISA-SAME:      transfers_in=256 bytes_in=65536 transfers_out=128 bytes_out=8192
# ISA-SAME:      source1=fp32@arg1
# ISA-SAME:      // {{.*}}graph.mlir:4

# VALUE: agrees

# ABSENT: graph.mlir:4:8: error: operator giou is called, and library box_ops is not loaded in this process
