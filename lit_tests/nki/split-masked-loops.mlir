// RUN: nki-opt --split-masked-loops %s | FileCheck %s

// Rows 128 i + p of 300, for i < 4: two full tiles, an edge of 44 rows, and nothing for i = 3.
// CHECK-LABEL: func.func @edge
// CHECK-DAG:     %[[C0:.*]] = arith.constant 0
// CHECK-DAG:     %[[C2:.*]] = arith.constant 2
// CHECK:         scf.for %[[I:.*]] = %[[C0]] to %[[C2]]
// CHECK:           "nki.load"(%[[T:.*]], %{{.*}}, %[[I]])
// CHECK-SAME:        {{\[\[}}1, 128], [1, 64]]>
// CHECK-SAME:        {{\[\[}}64, 128], [1, 64]]>
// CHECK-SAME:        mask = #[[NONE:set[0-9]*]]
// CHECK:         nki.loop = "parallel"
// CHECK:         "nki.load"(%{{[^,]*}}, %{{[^,]*}})
// CHECK-SAME:      {{\[\[}}1, 44], [1, 64]]>
// CHECK-SAME:      {{\[\[}}64, 44], [1, 64]]>
// CHECK-SAME:      mask = #[[NONE]]
// CHECK-NOT:     "nki.load"
// CHECK:         return
func.func @edge(%x: memref<300x64xf32, "hbm">) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %t = memref.alloc() : memref<128x64xf32, "sbuf">
    "nki.load"(%t, %x, %i) {
      access = [#nki.access<f32, affine_map<()[s0] -> (0, 0)>, [[1, 128], [1, 64]]>,
                #nki.access<f32, affine_map<()[s0] -> (s0 * 8192)>, [[64, 128], [1, 64]]>],
      mask = affine_set<(d0, d1)[s0] : (s0 * -128 - d0 + 299 >= 0)>}
      : (memref<128x64xf32, "sbuf">, memref<300x64xf32, "hbm">, index) -> ()
  } {nki.loop = "parallel"}
  return
}

// A mask that is no box stays; the part of it that is one shrinks the patterns.
// CHECK-LABEL: func.func @triangle
// CHECK:         "nki.copy"
// CHECK-SAME:      {{\[\[}}1, 100], [1, 100]]>
// CHECK-SAME:      mask = #[[TRIANGLE:set[0-9]*]]
func.func @triangle() {
  %x = memref.alloc() : memref<128x128xf32, "sbuf">
  %y = memref.alloc() : memref<128x128xf32, "sbuf">
  "nki.copy"(%x, %y) {
    access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 128]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 128]]>],
    mask = affine_set<(d0, d1) : (d0 - d1 >= 0, 99 - d0 >= 0)>}
    : (memref<128x128xf32, "sbuf">, memref<128x128xf32, "sbuf">) -> ()
  return
}

// A program id is cut by conditions; where it has one value it is a number.
// CHECK-LABEL: func.func @program
// CHECK-SAME:    %[[X:.*]]: memref<300x64xf32, "hbm">, %[[ID:.*]]: index
// CHECK-DAG:     %[[C1:.*]] = arith.constant 1
// CHECK:         %[[T:.*]] = memref.alloc()
// CHECK:         %[[BELOW:.*]] = arith.cmpi sge, %[[C1]], %[[ID]]
// CHECK:         scf.if %[[BELOW]] {
// CHECK:           "nki.load"(%[[T]], %[[X]], %[[ID]])
// CHECK-SAME:        {{\[\[}}64, 128], [1, 64]]>
// CHECK:         } else {
// CHECK:           "nki.load"(%[[T]], %[[X]])
// CHECK-SAME:        {{\[\[}}64, 44], [1, 64]]>
// CHECK:         }
// CHECK:         "nki.store"
func.func @program(%x: memref<300x64xf32, "hbm">, %id: index {nki.program_id = 0 : i64},
                   %y: memref<128x64xf32, "hbm">) attributes {nki.grid = [3]} {
  %t = memref.alloc() : memref<128x64xf32, "sbuf">
  "nki.load"(%t, %x, %id) {
    access = [#nki.access<f32, affine_map<()[s0] -> (0, 0)>, [[1, 128], [1, 64]]>,
              #nki.access<f32, affine_map<()[s0] -> (s0 * 8192)>, [[64, 128], [1, 64]]>],
    mask = affine_set<(d0, d1)[s0] : (s0 * -128 - d0 + 299 >= 0)>}
    : (memref<128x64xf32, "sbuf">, memref<300x64xf32, "hbm">, index) -> ()
  "nki.store"(%y, %t) {
    access = [#nki.access<f32, affine_map<() -> (0)>, [[64, 128], [1, 64]]>,
              #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>],
    mask = affine_set<() : (0 == 0)>} : (memref<128x64xf32, "hbm">, memref<128x64xf32, "sbuf">) -> ()
  return
}

// A loop in the body of a loop of the device is cut as any other.
// CHECK-LABEL: func.func @device_loop
// CHECK:         scf.while
// CHECK:         } do {
// CHECK:           scf.for
// CHECK:             "nki.load"
// CHECK-SAME:          {{\[\[}}64, 128], [1, 64]]>
// CHECK-SAME:          mask = #[[NONE]]
// CHECK:           "nki.load"(%{{[^,]*}}, %{{[^,]*}})
// CHECK-SAME:        {{\[\[}}64, 44], [1, 64]]>
// CHECK-SAME:        mask = #[[NONE]]
func.func @device_loop(%x: memref<300x64xf32, "hbm">) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0 : i32
  %left = memref.alloc() : memref<1x1xi32, "sbuf">
  scf.while : () -> () {
    %number = memref.load %left[%c0, %c0] : memref<1x1xi32, "sbuf">
    %more = arith.cmpi ne, %number, %zero : i32
    scf.condition(%more)
  } do {
    scf.for %i = %c0 to %c4 step %c1 {
      %t = memref.alloc() : memref<128x64xf32, "sbuf">
      "nki.load"(%t, %x, %i) {
        access = [#nki.access<f32, affine_map<()[s0] -> (0, 0)>, [[1, 128], [1, 64]]>,
                  #nki.access<f32, affine_map<()[s0] -> (s0 * 8192)>, [[64, 128], [1, 64]]>],
        mask = affine_set<(d0, d1)[s0] : (s0 * -128 - d0 + 299 >= 0)>}
        : (memref<128x64xf32, "sbuf">, memref<300x64xf32, "hbm">, index) -> ()
    }
    scf.yield
  }
  return
}
