// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-opt --lower-to-isa %s | FileCheck %s
// RUN: nki-run %s --on=isa --compare=interpreter,jit --quiet | FileCheck %s --check-prefix=VALUES

// Programs that meet have streams of their own, for a core each. The barrier waits for the store before it, the load
// behind waits for the barrier; an exchange is a transfer of a queue.
// VALUES: interpreter: {{.*}} agrees
// VALUES: jit: {{.*}} agrees

// CHECK:      .stream pool
// CHECK:      S[3] (qSyncIO1)>=16 CORE_BARRIER cores=(0,1) data=fp32@held[1,4][4,2] S[0] (GpSimd)++@complete
// CHECK:      .stream sp
// CHECK:      DMA queue=1 dst=fp32@held[1,4][4,1]
// CHECK:      S[0] (GpSimd)>=1 DMA queue=0 {{.*}} src=fp32@held[1,4][4,2]
// CHECK:      CC_ALL_REDUCE queue=0 groups="[[0, 1]]" over=programs op=add {{.*}} S[2] (qSyncIO0)+=16@complete
// CHECK:      // -----
// CHECK:      .stream sp
// CHECK:      DMA queue=1 dst=fp32@held+0x10[1,4][4,1]

#all = affine_set<() : (0 == 0)>
#row = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 1], [1, 4]]>
#mine = #nki.access<f32, affine_map<()[s0] -> (s0 * 4)>, [[4, 1], [1, 4]]>
module attributes {nki.target = "trn2"} {
  func.func @sums(%x: memref<2x4xf32, "hbm"> {nki.name = "x"},
                  %held: memref<2x4xf32, "hbm"> {nki.name = "held", nki.shared = 0 : i64},
                  %out: memref<2x4xf32, "hbm"> {nki.name = "out", nki.shared = 1 : i64},
                  %i: index {nki.program_id = 0 : i64}) attributes {nki.grid = [2], nki.results = [2]} {
    %a = memref.alloc() : memref<1x4xf32, "sbuf">
    %b = memref.alloc() : memref<2x4xf32, "sbuf">
    %c = memref.alloc() : memref<2x4xf32, "sbuf">
    "nisa.dma_copy"(%a, %x, %i) {access = [#row, #mine], engine = "unknown", mask = #all}
      : (memref<1x4xf32, "sbuf">, memref<2x4xf32, "hbm">, index) -> ()
    "nisa.dma_copy"(%held, %a, %i) {access = [#mine, #row], engine = "unknown", mask = #all}
      : (memref<2x4xf32, "hbm">, memref<1x4xf32, "sbuf">, index) -> ()
    "nisa.core_barrier"(%held) {access = [#nki.access<f32, affine_map<() -> (0)>, [[4, 2], [1, 4]]>],
      cores = [0, 1], engine = "unknown", mask = #all} : (memref<2x4xf32, "hbm">) -> ()
    "nisa.dma_copy"(%b, %held) {engine = "unknown", mask = #all,
      access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 2], [1, 4]]>,
                #nki.access<f32, affine_map<() -> (0)>, [[4, 2], [1, 4]]>]}
      : (memref<2x4xf32, "sbuf">, memref<2x4xf32, "hbm">) -> ()
    "nisa.all_reduce"(%c, %b) {engine = "unknown", groups = "[[0, 1]]", mask = #all, op = "add", over = "programs",
      access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 2], [1, 4]]>,
                #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 2], [1, 4]]>]}
      : (memref<2x4xf32, "sbuf">, memref<2x4xf32, "sbuf">) -> ()
    "nisa.dma_copy"(%out, %c, %i) {access = [#mine, #row], engine = "unknown", mask = #all}
      : (memref<2x4xf32, "hbm">, memref<2x4xf32, "sbuf">, index) -> ()
    return
  }
}
