// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory of calls. A thread keeps the blocks of its last calls for its next ones: a call within a call takes another
// block, and large blocks are not mapped anew each time. A block starts with {bytes, next block}; what is given out starts
// a cache line later.

llvm.func @pthread_key_create(!llvm.ptr, !llvm.ptr) -> i32
llvm.func @pthread_getspecific(i32) -> !llvm.ptr
llvm.func @pthread_setspecific(i32, !llvm.ptr) -> i32
llvm.func @aligned_alloc(i64, i64) -> !llvm.ptr
llvm.func @madvise(!llvm.ptr, i64, i32) -> i32
llvm.func @free(!llvm.ptr)

llvm.mlir.global internal @key(0 : i32) : i32

llvm.func internal @nki_memory_start() {
  %key = llvm.mlir.addressof @key : !llvm.ptr
  %end = llvm.mlir.addressof @free_all : !llvm.ptr
  %r = llvm.call @pthread_key_create(%key, %end) : (!llvm.ptr, !llvm.ptr) -> i32
  llvm.return
}

// When a thread ends.
llvm.func internal @free_all(%first: !llvm.ptr) {
  %null = llvm.mlir.zero : !llvm.ptr
  %end = scf.while (%block = %first) : (!llvm.ptr) -> !llvm.ptr {
    %some = llvm.icmp "ne" %block, %null : !llvm.ptr
    scf.condition(%some) %block : !llvm.ptr
  } do {
  ^each(%block: !llvm.ptr):
    %pn = llvm.getelementptr %block[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %next = llvm.load %pn : !llvm.ptr -> !llvm.ptr
    llvm.call @free(%block) : (!llvm.ptr) -> ()
    scf.yield %next : !llvm.ptr
  }
  llvm.return
}

// At least `size` bytes on a cache line, with a cache line before them; null when there are none. The first block that is
// large enough, or a new one in place of the first.
llvm.func internal @acquire(%size: i64) -> !llvm.ptr {
  %pkey = llvm.mlir.addressof @key : !llvm.ptr
  %key = llvm.load %pkey : !llvm.ptr -> i32
  %null = llvm.mlir.zero : !llvm.ptr
  %false = arith.constant false
  %above = arith.constant 127 : i64
  %lines = arith.constant -64 : i64
  %more = arith.addi %size, %above : i64
  %bytes = arith.andi %more, %lines : i64
  %first = llvm.call @pthread_getspecific(%key) : (i32) -> !llvm.ptr
  %found:2 = scf.while (%block = %first, %before = %null) : (!llvm.ptr, !llvm.ptr) -> (!llvm.ptr, !llvm.ptr) {
    %some = llvm.icmp "ne" %block, %null : !llvm.ptr
    %small = scf.if %some -> (i1) {
      %held = llvm.load %block : !llvm.ptr -> i64
      %less = arith.cmpi slt, %held, %bytes : i64
      scf.yield %less : i1
    } else {
      scf.yield %false : i1
    }
    scf.condition(%small) %block, %before : !llvm.ptr, !llvm.ptr
  } do {
  ^each(%block: !llvm.ptr, %before: !llvm.ptr):
    %pn = llvm.getelementptr %block[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %next = llvm.load %pn : !llvm.ptr -> !llvm.ptr
    scf.yield %next, %block : !llvm.ptr, !llvm.ptr
  }
  %fits = llvm.icmp "ne" %found#0, %null : !llvm.ptr
  %taken:2 = scf.if %fits -> (!llvm.ptr, !llvm.ptr) {
    scf.yield %found#0, %found#1 : !llvm.ptr, !llvm.ptr
  } else {
    scf.yield %first, %null : !llvm.ptr, !llvm.ptr
  }
  %some = llvm.icmp "ne" %taken#0, %null : !llvm.ptr
  scf.if %some {                                        // out of the list
    %pn = llvm.getelementptr %taken#0[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %next = llvm.load %pn : !llvm.ptr -> !llvm.ptr
    %inner = llvm.icmp "ne" %taken#1, %null : !llvm.ptr
    scf.if %inner {
      %pb = llvm.getelementptr %taken#1[1] : (!llvm.ptr) -> !llvm.ptr, i64
      llvm.store %next, %pb : !llvm.ptr, !llvm.ptr
    } else {
      %r = llvm.call @pthread_setspecific(%key, %next) : (i32, !llvm.ptr) -> i32
    }
  }
  %block = scf.if %fits -> (!llvm.ptr) {
    scf.yield %taken#0 : !llvm.ptr
  } else {
    llvm.call @free(%taken#0) : (!llvm.ptr) -> ()       // free(null) does nothing
    %new = llvm.call @allocate(%bytes) : (i64) -> !llvm.ptr
    scf.yield %new : !llvm.ptr
  }
  %none = llvm.icmp "eq" %block, %null : !llvm.ptr
  %data = llvm.getelementptr %block[64] : (!llvm.ptr) -> !llvm.ptr, i8
  %result = llvm.select %none, %null, %data : i1, !llvm.ptr
  llvm.return %result : !llvm.ptr
}

// Large blocks ask for large pages: far fewer faults when they are touched for the first time.
llvm.func internal @allocate(%bytes: i64) -> !llvm.ptr {
  %null = llvm.mlir.zero : !llvm.ptr
  %line = arith.constant 64 : i64
  %page = arith.constant 2097152 : i64
  %large = arith.cmpi sge, %bytes, %page : i64
  %alignment = arith.select %large, %page, %line : i64
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %below = arith.subi %alignment, %one : i64
  %mask = arith.subi %zero, %alignment : i64
  %more = arith.addi %bytes, %below : i64
  %whole = arith.andi %more, %mask : i64
  %new = llvm.call @aligned_alloc(%alignment, %whole) : (i64, i64) -> !llvm.ptr
  %made = llvm.icmp "ne" %new, %null : !llvm.ptr
  %advise = arith.andi %made, %large : i1
  scf.if %advise {
    %huge = arith.constant 14 : i32                     // MADV_HUGEPAGE of Linux; a mere hint
    %r = llvm.call @madvise(%new, %bytes, %huge) : (!llvm.ptr, i64, i32) -> i32
  }
  scf.if %made {
    llvm.store %bytes, %new : i64, !llvm.ptr
  }
  llvm.return %new : !llvm.ptr
}

llvm.func internal @release(%data: !llvm.ptr) {
  %pkey = llvm.mlir.addressof @key : !llvm.ptr
  %key = llvm.load %pkey : !llvm.ptr -> i32
  %block = llvm.getelementptr %data[-64] : (!llvm.ptr) -> !llvm.ptr, i8
  %first = llvm.call @pthread_getspecific(%key) : (i32) -> !llvm.ptr
  %pn = llvm.getelementptr %block[1] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %first, %pn : !llvm.ptr, !llvm.ptr
  %r = llvm.call @pthread_setspecific(%key, %block) : (i32, !llvm.ptr) -> i32
  llvm.return
}
