// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --roll-repeats=least=2 %s | FileCheck %s
// RUN: nki-opt --roll-repeats=least=8 %s | FileCheck %s --check-prefix=FEW
// RUN: nki-opt --roll-repeats="least=1 pairs=true" %s | FileCheck %s --check-prefix=NEST
// RUN: nki-opt --roll-repeats="least=1 lines=true" %s | FileCheck %s --check-prefix=LINES

!x = memref<128x192xf32, "hbm">
!tile = memref<128x64xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
#left = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 32]]>
#right = #nki.access<f32, affine_map<() -> (0, 32)>, [[1, 128], [1, 32]]>
#x0 = #nki.access<f32, affine_map<() -> (0)>, [[192, 128], [1, 64]]>
#x1 = #nki.access<f32, affine_map<() -> (64)>, [[192, 128], [1, 64]]>
#x2 = #nki.access<f32, affine_map<() -> (128)>, [[192, 128], [1, 64]]>
#load = loc("kernel.py":3:8)
#store = loc("kernel.py":4:4)

// CHECK-DAG: #[[WHOLE:map[0-9]*]] = affine_map<()[s0] -> (0, 0)>
// CHECK-DAG: #[[ROWS:map[0-9]*]] = affine_map<()[s0] -> (s0 * 64)>
// CHECK-DAG: #[[BACK:map[0-9]*]] = affine_map<()[s0] -> (s0 * -64 + 128)>
// CHECK-DAG: #[[INDEX:map[0-9]*]] = affine_map<(d0, d1)[s0] -> (d1 + s0 * 64 + 5)>
// CHECK-DAG: #[[LEFT:map[0-9]*]] = affine_map<() -> (0, 0)>
// CHECK-DAG: #[[RIGHT:map[0-9]*]] = affine_map<() -> (0, 32)>

// Three tiles of 64 columns, which are written in the opposite order. Each has its own buffer, which has a name.
// CHECK-LABEL: func.func @reversed(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<128x192xf32, "hbm">, %[[Y:[a-z0-9]+]]: memref<128x192xf32, "hbm">
// CHECK-NEXT:    %[[C0:.*]] = arith.constant 0 : index
// CHECK-NEXT:    %[[C3:.*]] = arith.constant 3 : index
// CHECK-NEXT:    %[[C1:.*]] = arith.constant 1 : index
// CHECK-NEXT:    scf.for %[[I:[a-z0-9]+]] = %[[C0]] to %[[C3]] step %[[C1]] {
// CHECK-NEXT:      %[[T:.*]] = memref.alloc() {nki.name = "a"} : memref<128x64xf32, "sbuf">
// CHECK-NEXT:      "nki.load"(%[[T]], %[[X]], %[[I]])
// CHECK-SAME:        access = [#nki.access<f32, #[[WHOLE]], {{\[\[}}1, 128], [1, 64]]>,
// CHECK-SAME:                  #nki.access<f32, #[[ROWS]], {{\[\[}}192, 128], [1, 64]]>]
// CHECK-NEXT:      "nki.store"(%[[Y]], %[[T]], %[[I]])
// CHECK-SAME:        access = [#nki.access<f32, #[[BACK]], {{\[\[}}192, 128], [1, 64]]>,
// CHECK-SAME:                  #nki.access<f32, #[[WHOLE]], {{\[\[}}1, 128], [1, 64]]>]
// CHECK-NEXT:    } {nki.loop = "sequential"}
// CHECK-NEXT:    return

// FEW-LABEL: func.func @reversed(
// FEW-NOT:     scf.for
func.func @reversed(%x: !x, %y: !x) {
  %a = memref.alloc() {nki.name = "a"} : !tile loc(#load)
  "nki.load"(%a, %x) {access = [#tile, #x0], mask = #all} : (!tile, !x) -> () loc(#load)
  "nki.store"(%y, %a) {access = [#x2, #tile], mask = #all} : (!x, !tile) -> () loc(#store)
  %b = memref.alloc() {nki.name = "b"} : !tile loc(#load)
  "nki.load"(%b, %x) {access = [#tile, #x1], mask = #all} : (!tile, !x) -> () loc(#load)
  "nki.store"(%y, %b) {access = [#x1, #tile], mask = #all} : (!x, !tile) -> () loc(#store)
  %c = memref.alloc() {nki.name = "c"} : !tile loc(#load)
  "nki.load"(%c, %x) {access = [#tile, #x2], mask = #all} : (!tile, !x) -> () loc(#load)
  "nki.store"(%y, %c) {access = [#x0, #tile], mask = #all} : (!x, !tile) -> () loc(#store)
  return
}

// Two places in turn: the loop has no symbol in its patterns. Operations that are no complete repetition stay after it.
// CHECK-LABEL: func.func @in_turn(
// CHECK-SAME:    %[[T:[a-z0-9]+]]: memref<128x64xf32, "sbuf">
// CHECK:         %[[C2:.*]] = arith.constant 2 : index
// CHECK:         scf.for %{{.*}} = %{{.*}} to %[[C2]] step
// CHECK-NEXT:      "nki.copy"(%[[T]], %[[T]]) {access = [#nki.access<f32, #[[LEFT]], {{\[\[}}1, 128], [1, 32]]>, #nki.access<f32, #[[RIGHT]]
// CHECK-NEXT:      "nki.copy"(%[[T]], %[[T]]) {access = [#nki.access<f32, #[[RIGHT]], {{\[\[}}1, 128], [1, 32]]>, #nki.access<f32, #[[LEFT]]
// CHECK-NEXT:    } {nki.loop = "sequential"}
// CHECK-NEXT:    "nki.copy"(%[[T]], %[[T]]) {access = [#nki.access<f32, #[[LEFT]], {{\[\[}}1, 128], [1, 32]]>, #nki.access<f32, #[[RIGHT]]
// CHECK-NEXT:    return
func.func @in_turn(%t: !tile) {
  "nki.copy"(%t, %t) {access = [#left, #right], mask = #all} : (!tile, !tile) -> () loc(#load)
  "nki.copy"(%t, %t) {access = [#right, #left], mask = #all} : (!tile, !tile) -> () loc(#store)
  "nki.copy"(%t, %t) {access = [#left, #right], mask = #all} : (!tile, !tile) -> () loc(#load)
  "nki.copy"(%t, %t) {access = [#right, #left], mask = #all} : (!tile, !tile) -> () loc(#store)
  "nki.copy"(%t, %t) {access = [#left, #right], mask = #all} : (!tile, !tile) -> () loc(#load)
  return
}

// Loops in loops, each with its own steps: 0, 8, 32, 40. Two repetitions are enough with `pairs`, none without.
// CHECK-LABEL: func.func @nested(
// CHECK-NOT:     scf.for

// NEST-DAG: #[[STEPS:map[0-9]*]] = affine_map<()[s0, s1] -> (0, s0 * 32 + s1 * 8)>
// NEST-LABEL: func.func @nested(
// NEST:         scf.for %[[I:[a-z0-9]+]] = %{{.*}} to %[[C2:.*]] step
// NEST-NEXT:      scf.for %[[J:[a-z0-9]+]] = %{{.*}} to %[[C2]] step
// NEST-NEXT:        "nki.copy"(%{{.*}}, %{{.*}}, %[[I]], %[[J]]) {access = [#nki.access<f32, #[[STEPS]], {{\[\[}}1, 128], [1, 8]]>
// NEST-NEXT:      } {nki.loop = "sequential"}
// NEST-NEXT:      "nki.copy"(%{{.*}}, %{{[a-z0-9]+}}) {
// NEST-NEXT:    } {nki.loop = "sequential"}
// NEST-NEXT:    return
#at0 = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 8]]>
#at8 = #nki.access<f32, affine_map<() -> (0, 8)>, [[1, 128], [1, 8]]>
#at16 = #nki.access<f32, affine_map<() -> (0, 16)>, [[1, 128], [1, 8]]>
#at32 = #nki.access<f32, affine_map<() -> (0, 32)>, [[1, 128], [1, 8]]>
#at40 = #nki.access<f32, affine_map<() -> (0, 40)>, [[1, 128], [1, 8]]>
func.func @nested(%t: !tile) {
  "nki.copy"(%t, %t) {access = [#at0, #at0], mask = #all} : (!tile, !tile) -> () loc(#load)
  "nki.copy"(%t, %t) {access = [#at8, #at0], mask = #all} : (!tile, !tile) -> () loc(#load)
  "nki.copy"(%t, %t) {access = [#left, #right], mask = #all} : (!tile, !tile) -> () loc(#store)
  "nki.copy"(%t, %t) {access = [#at32, #at0], mask = #all} : (!tile, !tile) -> () loc(#load)
  "nki.copy"(%t, %t) {access = [#at40, #at0], mask = #all} : (!tile, !tile) -> () loc(#load)
  "nki.copy"(%t, %t) {access = [#left, #right], mask = #all} : (!tile, !tile) -> () loc(#store)
  return
}

// An index starts one step further on in each iteration, as tiles do.
// CHECK-LABEL: func.func @counted(
// CHECK-SAME:    %[[T:[a-z0-9]+]]: memref<128x64xf32, "sbuf">
// CHECK:         scf.for %[[I:[a-z0-9]+]] = {{.*}} {
// CHECK-NEXT:      "nki.iota"(%[[T]], %[[I]])
// CHECK-SAME:        expression = #[[INDEX]]
// CHECK-NEXT:    } {nki.loop = "sequential"}
// CHECK-NEXT:    return
func.func @counted(%t: !tile) {
  "nki.iota"(%t) {access = [#tile], expression = affine_map<(d0, d1) -> (d1 + 5)>, mask = #all} : (!tile) -> () loc(#load)
  "nki.iota"(%t) {access = [#tile], expression = affine_map<(d0, d1) -> (d1 + 69)>, mask = #all} : (!tile) -> () loc(#load)
  "nki.iota"(%t) {access = [#tile], expression = affine_map<(d0, d1) -> (d1 + 133)>, mask = #all} : (!tile) -> () loc(#load)
  return
}

// Operations of different lines, as in MLIR text, form a loop only with `lines`.
// CHECK-LABEL: func.func @lines(
// CHECK-NOT:     scf.for

// LINES-LABEL: func.func @lines(
// LINES:         %[[C3:.*]] = arith.constant 3 : index
// LINES:         scf.for %[[I:[a-z0-9]+]] = %{{.*}} to %[[C3]] step
// LINES-NEXT:      "nki.copy"(%{{.*}}, %{{.*}}, %[[I]])
// LINES-NEXT:    } {nki.loop = "sequential"}
// LINES-NEXT:    return
func.func @lines(%t: !tile) {
  "nki.copy"(%t, %t) {access = [#at0, #at32], mask = #all} : (!tile, !tile) -> ()
  "nki.copy"(%t, %t) {access = [#at8, #at32], mask = #all} : (!tile, !tile) -> ()
  "nki.copy"(%t, %t) {access = [#at16, #at32], mask = #all} : (!tile, !tile) -> ()
  return
}
