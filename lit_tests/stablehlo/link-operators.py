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

# CHECK:       #[[HBM:map[0-9]*]] = affine_map<() -> (0)>
# CHECK-LABEL: func.func @main(
# CHECK-SAME:    %[[A:[a-z0-9]+]]: tensor<128x16x4xf32>, %[[B:[a-z0-9]+]]: tensor<128x16x4xf32>) -> tensor<128x16xf32>
# CHECK-NEXT:    %[[SUM:.*]] = stablehlo.add %[[A]], %[[B]]
# CHECK-NEXT:    %[[IOU:.*]] = call @giou(%[[SUM]], %[[B]])
# CHECK-NEXT:    %[[TWICE:.*]] = call @doubled(%[[IOU]])
# CHECK-NEXT:    return %[[TWICE]]
# CHECK-LABEL: func.func private @giou.program(
# CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<128x16x4xf32, "hbm"> {nki.name = "tensors_0"},
# CHECK-SAME:    %[[B:[a-z0-9]+]]: memref<128x16x4xf32, "hbm"> {nki.name = "tensors_1"},
# CHECK-SAME:    %[[OUT:[a-z0-9]+]]: memref<128x16xf32, "hbm"> {nki.name = "t0", nki.shared = 0 : i64})
# CHECK-NEXT:    "nisa.gpsimd_call"(%[[OUT]], %[[A]], %[[B]])
# CHECK-SAME:      access = [#nki.access<f32, #[[HBM]], {{\[\[}}16, 128], [1, 16]]>,
# CHECK-SAME:                #nki.access<f32, #[[HBM]], {{\[\[}}64, 128], [4, 16], [1, 4]]>,
# CHECK-SAME:                #nki.access<f32, #[[HBM]], {{\[\[}}64, 128], [4, 16], [1, 4]]>]
# CHECK-SAME:      busy = {{[1-9][0-9]*}} : i64, bytes_in = 65536 : i64, bytes_out = 8192 : i64
# CHECK-SAME:      function = "giou", library = "{{.*}}libgiou.so"
# CHECK-NEXT:    return
# CHECK-LABEL: func.func private @giou(
# CHECK:         call @giou.program(
# CHECK-LABEL: func.func private @doubled.program(
# CHECK:         "nki.binary_scalar"({{.*}} op = "multiply", reverse = false, scalar = 2.000000e+00 : f64
# CHECK-NOT:   custom_call

# WAIST-DAG: #[[FLAT:map[0-9]*]] = affine_map<() -> (0)>
# WAIST-DAG: #[[ORIGIN:map[0-9]*]] = affine_map<() -> (0, 0)>
# WAIST-LABEL: func.func @main(
# WAIST-SAME:    %[[A:[a-z0-9]+]]: memref<128x16x4xf32, "hbm"> {nki.name = "arg0"},
# WAIST-SAME:    %[[B:[a-z0-9]+]]: memref<128x16x4xf32, "hbm"> {nki.name = "arg1"},
# WAIST-SAME:    %[[R:[a-z0-9]+]]: memref<128x16xf32, "hbm"> {nki.name = "result0", nki.shared = 0 : i64})
# WAIST-NEXT:    %[[SUM:.*]] = memref.alloc() {{.*}}memref<128x16x4xf32, "hbm">
# WAIST-NEXT:    linalg.generic {{.*}} ins(%[[A]], %[[B]] : {{.*}}) outs(%[[SUM]] :
# WAIST:         %[[IOU:.*]] = memref.alloc() : memref<128x16xf32, "hbm">
# WAIST-NEXT:    "nisa.gpsimd_call"(%[[IOU]], %[[SUM]], %[[B]])
# WAIST:         %[[X:.*]] = memref.alloc() {nki.name = "t1"}
# WAIST-NEXT:    %[[PART:.*]] = "nki.view"(%[[IOU]]) {access = #nki.access<f32, #[[FLAT]], {{\[\[}}16, 128], [1, 16]]>}
# WAIST-NEXT:    %[[TILE:.*]] = "nki.view"(%[[X]]) {access = #nki.access<f32, #[[ORIGIN]], {{\[\[}}1, 128], [1, 16]]>}
# WAIST-NEXT:    linalg.generic {{.*}} ins(%[[PART]] : {{.*}}) outs(%[[TILE]] :
# WAIST:           "scalar.alu"(%{{.*}}, %{{.*}}) {fn = "multiply"}
# WAIST:         %[[OUT:.*]] = "nki.view"(%[[R]]) {
# WAIST-NEXT:    linalg.generic {{.*}} outs(%[[OUT]] :

# The call waits until the sum is in HBM; what comes after waits for the call.
# ISA:         .semaphore [[DONE:[0-9]+]] GpSimd
# ISA:         .semaphore [[STORED:[0-9]+]] qSyncIO1
# ISA:         pool {{.*}}S[[[STORED]]] (qSyncIO1)>=16 GPSIMD_CALL library="{{.*}}libgiou.so" function=giou
# ISA-SAME:      transfers_in=256 bytes_in=65536 transfers_out=128 bytes_out=8192
# ISA-SAME:      dst=fp32@[[IOU:[a-z0-9_]+]][1,16][16,128] source0=fp32@[[SUM:[a-z0-9_]+]][1,4,64][4,16,128]
# ISA-SAME:      source1=fp32@arg1[1,4,64][4,16,128] S[[[DONE]]] (GpSimd)++@complete
# ISA-SAME:      // {{.*}}graph.mlir:4
# ISA:         DMA queue=2 dst=fp32@[[SUM]][1,64][64,128] {{.*}}S[[[STORED]]] (qSyncIO1)+=16@complete
# ISA:         S[[[DONE]]] (GpSimd)>=1 DMA queue=1 dst=fp32@{{0x[0-9a-f]+}}[1][16] src=fp32@[[IOU]][1,16][16,128]

# VALUE: agrees

# ABSENT: graph.mlir:4:8: error: operator giou is called, but library box_ops is not loaded in this process
