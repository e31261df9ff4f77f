// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --tile-and-place --split-input-file %s | FileCheck %s
// RUN: nki-opt --lower-to-isa --split-input-file %s | FileCheck --check-prefix=ISA %s

// One axis of 1600 elements, as both lie: 100 rows of 16 are the most that fill partitions evenly.
// CHECK-DAG:   #[[FLAT:map[0-9]*]] = affine_map<() -> (0)>
// CHECK-DAG:   #[[ORIGIN:map[0-9]*]] = affine_map<() -> (0, 0)>
// CHECK-LABEL: func.func @scaled(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<200x8xf32, "hbm"> {nki.name = "arg0"}, %[[R:[a-z0-9]+]]: memref<200x8xf32, "hbm">
// CHECK:         %[[X:.*]] = memref.alloc() : memref<100x16xf32, "sbuf">
// CHECK-NEXT:    %[[AV:.*]] = "nki.view"(%[[A]]) {access = #nki.access<f32, #[[FLAT]], {{\[\[}}16, 100], [1, 16]]>}
// CHECK-NEXT:    %[[XV:.*]] = "nki.view"(%[[X]]) {access = #nki.access<f32, #[[ORIGIN]], {{\[\[}}1, 100], [1, 16]]>}
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[AV]] : {{.*}}) outs(%[[XV]] :
// CHECK:         %[[Y:.*]] = memref.alloc() : memref<100x16xf32, "sbuf">
// CHECK-NEXT:    %[[YV:.*]] = "nki.view"(%[[Y]]) {access = #nki.access<f32, #[[ORIGIN]], {{\[\[}}1, 100], [1, 16]]>}
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[XV]] : {{.*}}) outs(%[[YV]] :
// CHECK-NEXT:    (%[[IN:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      %[[THREE:.*]] = arith.constant 3.0
// CHECK-NEXT:      %[[PRODUCT:.*]] = "scalar.alu"(%[[IN]], %[[THREE]]) {fn = "multiply"}
// CHECK-NEXT:      linalg.yield %[[PRODUCT]]
// CHECK:         %[[RV:.*]] = "nki.view"(%[[R]]) {access = #nki.access<f32, #[[FLAT]], {{\[\[}}16, 100], [1, 16]]>}
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[YV]] : {{.*}}) outs(%[[RV]] :
// ISA-LABEL:     .kernel scaled
// ISA:           S[2] (qSyncIO0)>=16 TENSOR_SCALAR op0=multiply imm0=3.0 dst=fp32@[[Y:0x[0-9a-f]+]][1][16]
// ISA-SAME:        src=fp32@[[X:0x[0-9a-f]+]][1][16] channels=100
// ISA:           DMA queue=0 dst=fp32@[[X]][1][16] src=fp32@arg0[1,16][16,100] channels=100
// ISA-NEXT:      S[0] (Vector)>=1 DMA queue=1 dst=fp32@result0[1,16][16,100] src=fp32@[[Y]][1][16] channels=100
func.func @scaled(%a: tensor<200x8xf32>) -> tensor<200x8xf32> {
  %c = stablehlo.constant dense<3.0> : tensor<200x8xf32>
  %0 = stablehlo.multiply %a, %c : tensor<200x8xf32>
  return %0 : tensor<200x8xf32>
}

// -----

// Rows of A go to the partitions of the result in PSUM; 200 summed elements are 128 and 72. A lies row by row, so its
// tiles are transposed on chip; those of B are not.
// CHECK-DAG:   #[[ID:map[0-9]*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG:   #[[TURNED:map[0-9]*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-DAG:   #[[FIRST:map[0-9]*]] = affine_map<() -> (0)>
// CHECK-DAG:   #[[COLUMN_128:map[0-9]*]] = affine_map<() -> (128)>
// CHECK-DAG:   #[[ROW_128:map[0-9]*]] = affine_map<() -> (4096)>
// CHECK-LABEL: func.func @product(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<64x200xf32, "hbm"> {nki.name = "arg0"},
// CHECK-SAME:    %[[B:[a-z0-9]+]]: memref<200x32xf32, "hbm">
// CHECK:         %[[SUM:.*]] = memref.alloc() : memref<64x32xf32, "psum">
// CHECK-NEXT:    %[[LEFT:.*]] = memref.alloc() : memref<128x64xf32, "sbuf">
// CHECK-NEXT:    %[[ROWS:.*]] = memref.alloc() : memref<64x128xf32, "sbuf">
// CHECK-NEXT:    %[[FROM:.*]] = "nki.view"(%[[A]]) {access = #nki.access<f32, #[[FIRST]], {{\[\[}}200, 64], [1, 128]]>}
// CHECK-NEXT:    %[[TO:.*]] = "nki.view"(%[[ROWS]]) {
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[ID]], #[[ID]]], {{.*}} ins(%[[FROM]] : {{.*}}) outs(%[[TO]] :
// CHECK:         %[[LEFT_TILE:.*]] = "nki.view"(%[[LEFT]]) {
// CHECK-NEXT:    linalg.generic {indexing_maps = [#[[TURNED]], #[[ID]]], {{.*}} ins(%[[TO]] : {{.*}}) outs(%[[LEFT_TILE]] :
// CHECK:         %[[RIGHT:.*]] = memref.alloc() : memref<128x32xf32, "sbuf">
// CHECK-NEXT:    %[[FROM:.*]] = "nki.view"(%[[B]]) {access = #nki.access<f32, #[[FIRST]], {{\[\[}}32, 128], [1, 32]]>}
// CHECK-NEXT:    %[[RIGHT_TILE:.*]] = "nki.view"(%[[RIGHT]]) {
// CHECK:         %[[START:.*]] = "nki.view"(%[[SUM]]) {
// CHECK:         linalg.fill ins(%{{.*}} : f32) outs(%[[START]] :
// CHECK:         linalg.generic {{.*}} iterator_types = ["reduction", "parallel", "parallel"]}
// CHECK-SAME:      ins(%[[LEFT_TILE]], %[[RIGHT_TILE]] : {{.*}}) outs(%[[START]] :
// CHECK-NOT:     linalg.fill
// CHECK:         memref.alloc() : memref<72x64xf32, "sbuf">
// CHECK:         "nki.view"(%[[A]]) {access = #nki.access<f32, #[[COLUMN_128]], {{\[\[}}200, 64], [1, 72]]>}
// CHECK:         "nki.view"(%[[B]]) {access = #nki.access<f32, #[[ROW_128]], {{\[\[}}32, 72], [1, 32]]>}
// CHECK:         linalg.generic {{.*}} iterator_types = ["reduction", "parallel", "parallel"]}
// ISA-LABEL:     .kernel product
// ISA:           .stream pe
// ISA-DAG:       TRANSPOSE dst=fp32@[[T0:0x[0-9a-f]+]][1][64] src=fp32@{{0x[0-9a-f]+}}[1][128]*64 channels=128
// ISA-DAG:       TRANSPOSE dst=fp32@[[T1:0x[0-9a-f]+]][1][64] src=fp32@{{0x[0-9a-f]+}}[1][72]*64 channels=72
// ISA:           MATMUL dst=fp32@[[SUM:0x[0-9a-f]+]][1][32]
// ISA-SAME:        stationary=fp32@[[L0:0x[0-9a-f]+]][1][64]*128 moving=fp32@[[R0:0x[0-9a-f]+]][1][32]*128 channels=64
// ISA:           MATMUL accumulate=1 dst=fp32@[[SUM]][1][32]
// ISA-SAME:        stationary=fp32@[[L1:0x[0-9a-f]+]][1][64]*72 moving=fp32@[[R1:0x[0-9a-f]+]][1][32]*72 channels=64
// ISA-DAG:       COPY dst=fp32@[[L0]][1][64] src=fp32@[[T0]][1][64] channels=128
// ISA-DAG:       COPY dst=fp32@[[L1]][1][64] src=fp32@[[T1]][1][64] channels=72
// ISA-DAG:       DMA {{.*}} dst=fp32@[[R0]][1][32] src=fp32@arg1[1,32][32,128] channels=128
// ISA-DAG:       DMA {{.*}} dst=fp32@[[R1]][1][32] src=fp32@arg1+0x4000[1,32][32,72] channels=72
func.func @product(%a: tensor<64x200xf32>, %b: tensor<200x32xf32>) -> tensor<64x32xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<64x200xf32>, tensor<200x32xf32>) -> tensor<64x32xf32>
  return %0 : tensor<64x32xf32>
}

// -----

// Data that only moves goes from HBM to HBM.
// CHECK-DAG:   #[[START:map[0-9]*]] = affine_map<() -> (0)>
// CHECK-DAG:   #[[BEHIND:map[0-9]*]] = affine_map<() -> (32)>
// CHECK-LABEL: func.func @joined(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<4x8xf32, "hbm"> {nki.name = "arg0"},
// CHECK-SAME:    %[[B:[a-z0-9]+]]: memref<2x8xf32, "hbm"> {nki.name = "arg1"},
// CHECK-SAME:    %[[R:[a-z0-9]+]]: memref<6x8xf32, "hbm">
// CHECK-NOT:     "sbuf"
// CHECK:         %[[AV:.*]] = "nki.view"(%[[A]]) {access = #nki.access<f32, #[[START]], {{\[\[}}1, 1], [1, 32]]>}
// CHECK-NEXT:    %[[FIRST:.*]] = "nki.view"(%[[R]]) {access = #nki.access<f32, #[[START]], {{\[\[}}1, 1], [1, 32]]>}
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[AV]] : {{.*}}) outs(%[[FIRST]] :
// CHECK-NOT:     "sbuf"
// CHECK:         %[[BV:.*]] = "nki.view"(%[[B]]) {access = #nki.access<f32, #[[START]], {{\[\[}}1, 1], [1, 16]]>}
// CHECK-NEXT:    %[[SECOND:.*]] = "nki.view"(%[[R]]) {access = #nki.access<f32, #[[BEHIND]], {{\[\[}}1, 1], [1, 16]]>}
// CHECK-NEXT:    linalg.generic {{.*}} ins(%[[BV]] : {{.*}}) outs(%[[SECOND]] :
// CHECK-NOT:     linalg.generic
// CHECK:         return
// ISA-LABEL:     .kernel joined
// ISA-DAG:       DMA queue={{[01]}} dst=fp32@result0[1,1][32,1] src=fp32@arg0[1,1][32,1]
// ISA-DAG:       DMA queue={{[01]}} dst=fp32@result0+0x80[1,1][16,1] src=fp32@arg1[1,1][16,1]
func.func @joined(%a: tensor<4x8xf32>, %b: tensor<2x8xf32>) -> tensor<6x8xf32> {
  %0 = stablehlo.concatenate %a, %b, dim = 0 : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<6x8xf32>
  return %0 : tensor<6x8xf32>
}

// -----

// What one operation has stored, and what it has loaded, the next ones have on chip; nobody reads %1 in HBM.
// ISA-LABEL:     .kernel shares
// ISA-NOT:       .internal
// ISA:           .stream dve
// ISA-NEXT:      S[2] (qSyncIO0)>=16 TENSOR_REDUCE op=add axes=(1) dst=fp32@[[SUM:0x[0-9a-f]+]][1][1]
// ISA-SAME:        src=fp32@[[A:0x[0-9a-f]+]][1][32] channels=64
// ISA-NEXT:      TENSOR_SCALAR op0=divide dst=fp32@[[R:0x[0-9a-f]+]][1][32]
// ISA-SAME:        src=fp32@[[A]][1][32] operand0=fp32@[[SUM]][0][32] channels=64
// ISA-NEXT:      .stream sp
// ISA-NEXT:      DMA queue=0 dst=fp32@[[A]][1][32] src=fp32@arg0[1,32][32,64] channels=64
// ISA-NEXT:      S[0] (Vector)>=1 DMA queue=1 dst=fp32@result0[1,32][32,64] src=fp32@[[R]][1][32] channels=64
// ISA-NEXT:      S[3] (qSyncIO1)>=16 EVENT_SEMAPHORE
func.func @shares(%a: tensor<64x32xf32>) -> tensor<64x32xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<64x32xf32>, tensor<f32>) -> tensor<64xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<64xf32>) -> tensor<64x32xf32>
  %2 = stablehlo.divide %a, %1 : tensor<64x32xf32>
  return %2 : tensor<64x32xf32>
}
