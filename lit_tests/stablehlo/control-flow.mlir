// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --stablehlo-to-linalg --tile-and-place --split-input-file %s | FileCheck %s
// RUN: nki-opt --lower-to-isa --split-input-file %s | FileCheck --check-prefix=ISA %s

// A place from a loop's variable is index arithmetic: where the loop is written out, addresses are numbers.
// CHECK:       #[[ROW:map[0-9]*]] = affine_map<()[s0] -> (s0 * 4)>
// CHECK-LABEL: func.func @rows(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<8x4xf32, "hbm"> {nki.name = "arg0"}, %[[R:[a-z0-9]+]]: memref<1x4xf32, "hbm">
// CHECK:         scf.for %[[I:[a-z0-9]+]] = %c0 to %c3 step %c1 {
// CHECK-NOT:       memref.load
// CHECK:           %[[LOW:.*]] = arith.maxsi %{{.*}}, %c0 : index
// CHECK-NEXT:      %[[ROW_INSIDE:.*]] = arith.minsi %[[LOW]], %c7 : index
// CHECK:           "nki.view"(%[[A]], %[[ROW_INSIDE]]) {access = #nki.access<f32, #[[ROW]], {{\[\[}}1, 4]]>}
// ISA-LABEL:     .kernel rows
// ISA-NOT:       TENSOR_LOAD
// ISA-DAG:       DMA queue={{[0-9]}} dst=fp32@[[T0:0x[0-9a-f]+]][1][1] src=fp32@arg0[1,1][1,4] channels=4
// ISA-DAG:       DMA queue={{[0-9]}} dst=fp32@[[T1:0x[0-9a-f]+]][1][1] src=fp32@arg0+0x10[1,1][1,4] channels=4
// ISA-DAG:       DMA queue={{[0-9]}} dst=fp32@[[T2:0x[0-9a-f]+]][1][1] src=fp32@arg0+0x20[1,1][1,4] channels=4
func.func @rows(%a: tensor<8x4xf32>) -> tensor<1x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %start = stablehlo.constant dense<0.0> : tensor<1x4xf32>
  %0:2 = stablehlo.while(%i = %zero, %x = %start) : tensor<i32>, tensor<1x4xf32>
  cond {
    %n = stablehlo.constant dense<3> : tensor<i32>
    %1 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %1 = stablehlo.add %i, %one : tensor<i32>
    %2 = stablehlo.dynamic_slice %a, %i, %zero, sizes = [1, 4]
      : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
    %3 = stablehlo.add %x, %2 : tensor<1x4xf32>
    stablehlo.return %1, %3 : tensor<i32>, tensor<1x4xf32>
  }
  return %0#1 : tensor<1x4xf32>
}

// -----

// A place from data is loaded on chip, and from there into a register of each engine, which makes it one inside.
// CHECK:       #[[ROW:map[0-9]*]] = affine_map<()[s0] -> (s0 * 4)>
// CHECK-LABEL: func.func @slice(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<8x4xf32, "hbm"> {nki.name = "arg0"},
// CHECK-SAME:    %[[I:[a-z0-9]+]]: memref<i32, "hbm"> {nki.name = "arg1"},
// CHECK-SAME:    %[[R:[a-z0-9]+]]: memref<2x4xf32, "hbm">
// CHECK:         %[[TILE:.*]] = memref.alloc() : memref<1x1xi32, "sbuf">
// CHECK:         %[[FROM:.*]] = "nki.view"(%[[I]]) {
// CHECK:         %[[TO:.*]] = "nki.view"(%[[TILE]]) {
// CHECK:         linalg.generic {{.*}} ins(%[[FROM]] : {{.*}}) outs(%[[TO]] :
// CHECK:         %[[N:.*]] = memref.load %[[TILE]][
// CHECK-NEXT:    %[[INDEX:.*]] = arith.index_cast %[[N]] : i32 to index
// CHECK-NEXT:    %[[LOW:.*]] = arith.maxsi %[[INDEX]], %c0 : index
// CHECK-NEXT:    %[[INSIDE:.*]] = arith.minsi %[[LOW]], %c6 : index
// CHECK-NEXT:    %[[AT:.*]] = "nki.view"(%[[A]], %[[INSIDE]]) {access = #nki.access<f32, #[[ROW]], {{\[\[}}1, 1], [1, 8]]>}
// CHECK:         linalg.generic {{.*}} ins(%[[AT]] : memref<1x8xf32, strided<[1, 1], offset: ?>, "hbm">)
// ISA-LABEL:     .kernel slice
// ISA:           DMA queue=0 dst=int32@[[I:0x[0-9a-f]+]][1][1] src=int32@arg1[1,1][1,1]
// ISA:           TENSOR_LOAD dst=[[N:r[0-9]+]] src=int32@[[I]][1][1]*1
// ISA:           ALU op=max dst=[[LOW:r[0-9]+]] lhs=[[N]] rhs=0
// ISA-NEXT:      ALU op=min dst=[[INSIDE:r[0-9]+]] lhs=[[LOW]] rhs=6
// ISA-NEXT:      DMA queue=1 dst=fp32@result0[1,1][8,1] src=fp32@arg0+16*[[INSIDE]][1,1][8,1]
func.func @slice(%a: tensor<8x4xf32>, %i: tensor<i32>) -> tensor<2x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.dynamic_slice %a, %i, %zero, sizes = [2, 4]
    : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// -----

// A branch is on a number that is loaded on chip. On the engines, each goes the way that its own register says.
// CHECK-LABEL: func.func @branch(
// CHECK-SAME:    %[[P:[a-z0-9]+]]: memref<i1, "hbm">
// CHECK:         %[[TILE:.*]] = memref.alloc() : memref<1x1xi1, "sbuf">
// CHECK:         "nki.view"(%[[P]]) {
// CHECK:         %[[CONDITION:.*]] = memref.load %[[TILE]][%c0, %c0] : memref<1x1xi1, "sbuf">
// CHECK-NEXT:    scf.if %[[CONDITION]] {
// CHECK:           "scalar.alu"(%in) {fn = "negative"} : (f32) -> f32
// CHECK:         } else {
// CHECK:           "scalar.alu"(%in, %in) {fn = "add"} : (f32, f32) -> f32
// ISA-LABEL:     .kernel branch
// ISA:           .stream dve
// ISA:           dve {{[0-9]+}}: TENSOR_LOAD dst=[[R:r[0-9]+]] src=bool@[[P:0x[0-9a-f]+]][1][1]*1
// ISA:           dve {{[0-9]+}}: COMPARE_BRANCH op=eq lhs=[[R]] rhs=0 target=[[ELSE:[0-9]+]]
// ISA-NEXT:      dve {{[0-9]+}}: S[{{[0-9]+}}] (qSyncIO0)>=16 TENSOR_SCALAR op0=negative dst=fp32@[[Y:0x[0-9a-f]+]][1][4] src=fp32@[[X:0x[0-9a-f]+]][1][4] channels=8
// ISA:           .stream pool
// ISA:           pool {{[0-9]+}}: TENSOR_LOAD dst=[[R:r[0-9]+]] src=bool@[[P]][1][1]*1
// ISA:           pool {{[0-9]+}}: COMPARE_BRANCH op=eq lhs=[[R]] rhs=0 target=[[ELSE:[0-9]+]]
// ISA:           pool {{[0-9]+}}: COMPARE_BRANCH op=eq lhs=0 rhs=0 target=[[END:[0-9]+]]
// ISA-NEXT:      pool [[ELSE]]: S[{{[0-9]+}}] (qSyncIO0)>=16 TENSOR_TENSOR op=add dst=fp32@[[Y]][1][4] lhs=fp32@[[X]][1][4] rhs=fp32@[[X]][1][4] channels=8
// ISA:           .stream sp
// ISA:           DMA queue=0 dst=bool@[[P]][1][1] src=bool@arg0[1,1][1,1]
// ISA:           sp {{[0-9]+}}: TENSOR_LOAD dst=[[R:r[0-9]+]] src=bool@[[P]][1][1]*1
// ISA:           sp {{[0-9]+}}: COMPARE_BRANCH op=eq lhs=[[R]] rhs=0 target=[[ELSE:[0-9]+]]
func.func @branch(%p: tensor<i1>, %a: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = "stablehlo.if"(%p) ({
    %1 = stablehlo.negate %a : tensor<8x4xf32>
    stablehlo.return %1 : tensor<8x4xf32>
  }, {
    %1 = stablehlo.add %a, %a : tensor<8x4xf32>
    stablehlo.return %1 : tensor<8x4xf32>
  }) : (tensor<i1>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// -----

// What the loop goes on by is computed and loaded before each iteration.
// CHECK-LABEL: func.func @doubled(
// CHECK:         scf.while : () -> () {
// CHECK:           %[[LESS:.*]] = "scalar.alu"(%in, %{{.*}}) {fn = "less"} : (f32, f32) -> f32
// CHECK-NEXT:      "scalar.convert"(%[[LESS]]) : (f32) -> i1
// CHECK:           %[[TILE:.*]] = memref.alloc() : memref<1x1xi1, "sbuf">
// CHECK:           %[[MORE:.*]] = memref.load %[[TILE]][%c0, %c0] : memref<1x1xi1, "sbuf">
// CHECK:           scf.condition(%[[MORE]])
// CHECK-NEXT:    } do {
// CHECK:           "scalar.alu"(%in, %in) {fn = "add"} : (f32, f32) -> f32
// CHECK:           scf.yield
// ISA-LABEL:     .kernel doubled
// ISA:           .stream dve
// ISA:           dve [[BEGIN:[0-9]+]]: S[2] (qSyncIO0)>=16 TENSOR_SCALAR op0=less imm0=100.0
// ISA:           dve {{[0-9]+}}: TENSOR_LOAD dst=[[R:r[0-9]+]] src=bool@{{0x[0-9a-f]+}}[1][1]*1
// ISA:           dve {{[0-9]+}}: COMPARE_BRANCH op=eq lhs=[[R]] rhs=0 target={{[0-9]+}}
// ISA-NEXT:      dve {{[0-9]+}}: S[2] (qSyncIO0)>=16 TENSOR_SCALAR op0=add
// ISA:           dve {{[0-9]+}}: COMPARE_BRANCH op=eq lhs=0 rhs=0 target=[[BEGIN]]
func.func @doubled(%a: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.while(%x = %a) : tensor<f32>
  cond {
    %n = stablehlo.constant dense<100.0> : tensor<f32>
    %1 = stablehlo.compare LT, %x, %n : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.add %x, %x : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }
  return %0 : tensor<f32>
}
