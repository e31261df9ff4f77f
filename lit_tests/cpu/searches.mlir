// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Searches in rows become routines, which search in integers in the order of the floats.
// RUN: nki-opt --lower-to-vector %s | FileCheck %s

#rows = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 4], [1, 64]]>
#eight = #nki.access<bf16, affine_map<() -> (0, 0)>, [[1, 4], [1, 8]]>
#counts = #nki.access<ui32, affine_map<() -> (0, 0)>, [[1, 4], [1, 8]]>
#all = affine_set<() : (0 == 0)>
!rows = memref<4x64xbf16, "sbuf">
!eight = memref<4x8xbf16, "sbuf">
!counts = memref<4x8xui32, "sbuf">

// CHECK:      // @searches(x, y)
// CHECK-NEXT: //   copy_256_bfloat16_{{.*}}(x, [[ROWS:memory.*]])
// CHECK-NEXT: //   largest_4x64_bfloat16_{{.*}}({{[0-9]+}}, [[TOP:memory.*]], [[ROWS]])
// CHECK-NEXT: //   replaced_4x64_bfloat16_in_place_{{.*}}({{[0-9]+}}, [[ROWS]], [[TOP]], [[INDEX:memory.*]], [[ROWS]])
// CHECK-NEXT: //   indices_4x64_bfloat16_{{.*}}({{[0-9]+}}, [[ROWS]], [[TOP]], [[INDEX]])
// CHECK-NEXT: //   copy_32_uint32_{{.*}}([[INDEX]], y)
// CHECK-NEXT: //   end
func.func @searches(%x: memref<4x64xbf16, "hbm"> {nki.name = "x"},
                    %y: memref<4x8xui32, "hbm"> {nki.name = "y", nki.shared = 0 : i64}) {
  %t = memref.alloc() : !rows
  %v = memref.alloc() : !eight
  %i = memref.alloc() : !counts
  linalg.copy ins(%x : memref<4x64xbf16, "hbm">) outs(%t : !rows)
  "nisa.max8"(%v, %t) {access = [#eight, #rows], mask = #all, engine = "vector"} : (!eight, !rows) -> ()
  "nisa.nc_match_replace8"(%t, %i, %t, %v) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>, access = [#rows, #counts, #rows, #eight], mask = #all,
    engine = "vector", imm = -1.0 : f64} : (!rows, !counts, !rows, !eight) -> ()
  "nisa.nc_find_index8"(%i, %t, %v) {access = [#counts, #rows, #eight], mask = #all, engine = "vector"}
    : (!counts, !rows, !eight) -> ()
  linalg.copy ins(%i : !counts) outs(%y : memref<4x8xui32, "hbm">)
  return
}

// The largest keys of lanes bound those of the row. Keys above the bound are inserted, one after the other.
// CHECK-LABEL: llvm.func internal @largest_4x64_bfloat16
// CHECK:         %[[BITS:.*]] = arith.xori %{{.*}}, %{{.*}} : vector<[[N:[0-9]+]]xi16>
// CHECK-NEXT:    %[[KEYS:.*]] = arith.select %{{.*}}, %{{.*}}, %[[BITS]] :
// CHECK:         llvm.store %[[KEYS]], %{{.*}} : vector<[[N]]xi16>, !llvm.ptr
// CHECK-NEXT:    %[[MAXIMA:.*]] = arith.maxsi %{{.*}}, %[[KEYS]] : vector<[[N]]xi16>
// CHECK-NEXT:    scf.yield %[[MAXIMA]]
// CHECK:         %[[SOME:.*]] = arith.cmpi sgt, %{{.*}}, %{{.*}} : vector<[[N]]xi16>
// CHECK-NEXT:    %[[FLAGS:.*]] = llvm.bitcast %[[SOME]] : vector<[[N]]xi1> to i[[N]]
// CHECK:         %[[COUNT:.*]] = llvm.intr.ctpop(%{{.*}})
// CHECK:         %[[ABOVE:.*]] = vector.shuffle %{{.*}}, %[[BEST:.*]] [0, 8, 9, 10, 11, 12, 13, 14]
// CHECK:         %[[LESSER:.*]] = arith.minsi %[[ABOVE]], %{{.*}} : vector<8xi32>
// CHECK-NEXT:    %{{.*}} = arith.maxsi %[[BEST]], %[[LESSER]] : vector<8xi32>
