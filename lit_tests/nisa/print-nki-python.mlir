// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: nki-translate --to-nki-python --keep-placement %s | FileCheck --check-prefix=PLACED %s
// RUN: nki-translate --to-nki-python --generation beta %s -o %t.py && FileCheck --check-prefix=BETA --input-file %t.py %s
// RUN: nki-translate --to-nki-python --release 2.29 %s | FileCheck --check-prefix=RELEASE %s

!x = memref<64x32xf32, "hbm">
!tile = memref<64x32xf32, "sbuf">
#all = affine_set<() : (0 == 0)>
#x = #nki.access<f32, affine_map<() -> (0)>, [[32, 64], [1, 32]]>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 32]]>

// Addresses and engines stay, and the note lists what NKI cannot express. Standard output has ruff's default format.
// PLACED:      # Compiled for trn2. NKI cannot express: {{[0-9]+}} semaphores, {{[0-9]+}} queues
// PLACED-NEXT: # separate instruction.
// PLACED-NEXT: @nki.jit
// PLACED-NEXT: def scale(x):
// PLACED:      rows = nl.ndarray((64, 32), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
// PLACED:      dst=rows, src=x, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.sync
// PLACED:      doubled = nl.ndarray(
// PLACED-NEXT: (64, 32), dtype=nl.float32, buffer=nl.sbuf, address=(0, 128)
// PLACED:      dst=doubled,
// PLACED:      engine=nisa.engine.gpsimd,

// Results of functions define tiles. A file is formatted with the settings of its directory.
// BETA:   import neuronxcc.nki as nki
// BETA:   def scale(x):
// BETA:   rows = nl.load(x)
// BETA:   doubled = nisa.tensor_scalar(data=rows, op0=nl.multiply, operand0=2.0, engine=nisa.engine.gpsimd)
// BETA:   out = nl.ndarray((64, 32), dtype=nl.float32, buffer=nl.shared_hbm)
// BETA:   nl.store(out, doubled)
// BETA:   return out

// RELEASE:      nisa.dma_copy(dst=rows, src=x)
// RELEASE:      dst=doubled, data=rows, op0=nl.multiply, operand0=2.0, engine=nisa.engine.gpsimd
module attributes {nki.target = "trn2"} {
  func.func @scale(%x: !x {nki.name = "x"}, %out: !x {nki.name = "out", nki.shared = 0 : i64})
      attributes {nki.grid = [], nki.results = [1]} {
    %rows = memref.alloc() {nki.name = "rows"} : !tile
    %doubled = memref.alloc() {nki.name = "doubled"} : !tile
    "nisa.dma_copy"(%rows, %x) {access = [#tile, #x], engine = "unknown", mask = #all} : (!tile, !x) -> ()
    "nisa.tensor_scalar"(%doubled, %rows) {access = [#tile, #tile], engine = "gpsimd", imm0 = 2.0 : f64, imm1 = 0.0 : f64,
      mask = #all, op0 = "multiply", op1 = "bypass", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, reverse0 = false, reverse1 = false}
      : (!tile, !tile) -> ()
    "nisa.dma_copy"(%out, %doubled) {access = [#x, #tile], engine = "unknown", mask = #all} : (!x, !tile) -> ()
    return
  }
}
