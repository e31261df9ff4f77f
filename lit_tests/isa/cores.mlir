// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --lower-to-isa %s | FileCheck %s
// RUN: nki-run %s --on=isa --compare=interpreter,jit --quiet | FileCheck %s --check-prefix=VALUES

// Programs that meet have separate streams, one for each core. The barrier waits for the store before it, the load
// after waits for the barrier; an exchange is a transfer of a queue.
// VALUES: interpreter: {{.*}} agrees
// VALUES: jit: {{.*}} agrees

!x = memref<2x4xf32, "hbm">
!row = memref<1x4xf32, "sbuf">
!rows = memref<2x4xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#x = #nki.access<f32, affine_map<() -> (0)>, [[4, 2], [1, 4]]>
#rows = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 2], [1, 4]]>
// With a program id: that row in HBM. All of a tile is the same for each.
#row_i = #nki.access<f32, affine_map<()[i] -> (0, 0)>, [[1, 1], [1, 4]]>
#mine = #nki.access<f32, affine_map<()[i] -> (i * 4)>, [[4, 1], [1, 4]]>

// CHECK:      .stream pool
// CHECK-NEXT: S[3] (qSyncIO1)>=16 CORE_BARRIER cores=(0,1) data=fp32@held[1,4][4,2] S[0] (GpSimd)++@complete
// CHECK-NEXT: .stream sp
// CHECK-NEXT: DMA queue=0 dst=fp32@0x0[1][4] src=fp32@x[1,4][4,1] {{.*}} S[2] (qSyncIO0)+=16@complete
// CHECK-NEXT: S[2] (qSyncIO0)>=16 DMA queue=1 dst=fp32@held[1,4][4,1] src=fp32@0x0[1][4] {{.*}} S[3] (qSyncIO1)+=16@complete
// CHECK-NEXT: S[0] (GpSimd)>=1 DMA queue=0 dst=fp32@0x10[1][4] src=fp32@held[1,4][4,2] {{.*}} S[2] (qSyncIO0)+=16@complete
// CHECK-NEXT: S[2] (qSyncIO0)>=32 CC_ALL_REDUCE queue=0 groups="{{\[\[}}0, 1]]" over=programs op=add
// CHECK-SAME:   dst=fp32@0x20[1][4] src=fp32@0x10[1][4] channels=2 S[2] (qSyncIO0)+=16@complete
// CHECK-NEXT: S[2] (qSyncIO0)>=48 DMA queue=1 dst=fp32@out[1,4][4,1] src=fp32@0x20[1][4]
// CHECK:      // -----
// The other core has the second row.
// CHECK:      .stream pool
// CHECK-NEXT: S[3] (qSyncIO1)>=16 CORE_BARRIER cores=(0,1) data=fp32@held[1,4][4,2] S[0] (GpSimd)++@complete
// CHECK-NEXT: .stream sp
// CHECK-NEXT: DMA queue=0 dst=fp32@0x0[1][4] src=fp32@x+0x10[1,4][4,1]
// CHECK-NEXT: S[2] (qSyncIO0)>=16 DMA queue=1 dst=fp32@held+0x10[1,4][4,1] src=fp32@0x0[1][4]
// CHECK-NEXT: S[0] (GpSimd)>=1 DMA queue=0 dst=fp32@0x10[1][4] src=fp32@held[1,4][4,2]
// CHECK-NEXT: S[2] (qSyncIO0)>=32 CC_ALL_REDUCE queue=0 groups="{{\[\[}}0, 1]]" over=programs op=add
// CHECK-NEXT: S[2] (qSyncIO0)>=48 DMA queue=1 dst=fp32@out+0x10[1,4][4,1] src=fp32@0x20[1][4]
module attributes {nki.target = "trn2"} {
  func.func @sums(%x: !x {nki.name = "x"}, %held: !x {nki.name = "held", nki.shared = 0 : i64},
                  %out: !x {nki.name = "out", nki.shared = 1 : i64},
                  %i: index {nki.program_id = 0 : i64}) attributes {nki.grid = [2], nki.results = [2]} {
    %a = memref.alloc() : !row
    %b = memref.alloc() : !rows
    %c = memref.alloc() : !rows
    "nisa.dma_copy"(%a, %x, %i) {access = [#row_i, #mine], engine = "unknown", mask = #all} : (!row, !x, index) -> ()
    "nisa.dma_copy"(%held, %a, %i) {access = [#mine, #row_i], engine = "unknown", mask = #all} : (!x, !row, index) -> ()
    "nisa.core_barrier"(%held) {access = [#x], cores = [0, 1], engine = "unknown", mask = #all} : (!x) -> ()
    "nisa.dma_copy"(%b, %held) {access = [#rows, #x], engine = "unknown", mask = #all} : (!rows, !x) -> ()
    "nisa.all_reduce"(%c, %b) {access = [#rows, #rows], engine = "unknown", groups = "[[0, 1]]", mask = #all, op = "add",
      over = "programs"} : (!rows, !rows) -> ()
    "nisa.dma_copy"(%out, %c, %i) {access = [#mine, #row_i], engine = "unknown", mask = #all} : (!x, !rows, index) -> ()
    return
  }
}
