// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A pool of worker threads and @nki_parallel_for, on pthreads and futexes.
//
// A job is published by opening a gate, one word {epoch : 32 | open : 1 | inside : 31}. A worker enters an open gate by
// compare-exchange (inside + 1), takes items and leaves (inside - 1). The caller works on the same items; when they are
// gone it closes the gate and waits only for those inside, so a worker that sleeps or has lost its CPU never delays a
// small job. Idle workers spin for a while and then sleep on the epoch. There is one job at a time: whoever finds @busy
// set (a nested call, another thread) is sent away.
//
// The caller takes the first items, workers the last ones. Two threads of equal speed meet in the middle, and each runs
// items that follow each other. @taken counts all items that are taken, @from_end those of workers.
//
// The result is the status of the first item that has one other than 0, as if the items ran in order. @failure is the
// least {item : 32 | status : 32}. A status ends the job for the caller, since only later items are left; a worker
// continues with earlier ones.
//
// A worker on the caller's processor runs instead of the caller, not beside it. Where other processes keep all processors
// busy, the system leaves it there for many jobs. So a worker that enters a job there moves to another processor.
//
// Each word that threads contend for has a cache line pair of its own.

llvm.mlir.global internal @gate(0 : i64) {alignment = 128 : i64} : i64
llvm.mlir.global internal @taken(0 : i64) {alignment = 128 : i64} : i64
llvm.mlir.global internal @from_end(0 : i64) {alignment = 128 : i64} : i64
llvm.mlir.global internal @busy(0 : i32) {alignment = 128 : i64} : i32
llvm.mlir.global internal @sleepers(0 : i32) {alignment = 128 : i64} : i32
llvm.mlir.global internal @failure(-1 : i64) {alignment = 128 : i64} : i64
llvm.mlir.global internal @count(0 : i64) {alignment = 128 : i64} : i64     // of the open job; so are item and argument
llvm.mlir.global internal @item() : !llvm.ptr { %z = llvm.mlir.zero : !llvm.ptr  llvm.return %z : !llvm.ptr }
llvm.mlir.global internal @argument() : !llvm.ptr { %z = llvm.mlir.zero : !llvm.ptr  llvm.return %z : !llvm.ptr }
llvm.mlir.global internal @processor(-1 : i32) : i32                        // the caller's
llvm.mlir.global internal @stop(0 : i32) {alignment = 128 : i64} : i32
llvm.mlir.global internal @workers(0 : i32) : i32
llvm.mlir.global internal @spins(4000 : i32) : i32                          // pauses before a worker sleeps
llvm.mlir.global internal @threads(dense<0> : tensor<256xi64>) : !llvm.array<256 x i64>

llvm.func @pthread_create(!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
llvm.func @pthread_join(i64, !llvm.ptr) -> i32
llvm.func @syscall(i64, ...) -> i64
llvm.func @sched_yield() -> i32
llvm.func @sched_getcpu() -> i32
llvm.func @sched_getaffinity(i32, i64, !llvm.ptr) -> i32
llvm.func @sched_setaffinity(i32, i64, !llvm.ptr) -> i32

// futex(&epoch, FUTEX_WAIT_PRIVATE, seen). The epoch is the high half of the gate, at byte 4 on a little-endian machine.
llvm.func internal @sleep(%seen: i32) {
  %gate = llvm.mlir.addressof @gate : !llvm.ptr
  %epoch = llvm.getelementptr %gate[4] : (!llvm.ptr) -> !llvm.ptr, i8
  %sleepers = llvm.mlir.addressof @sleepers : !llvm.ptr
  %one = llvm.mlir.constant(1 : i32) : i32
  %futex = llvm.mlir.constant(@FUTEX@ : i64) : i64
  %wait = llvm.mlir.constant(128 : i32) : i32
  %forever = llvm.mlir.zero : !llvm.ptr
  %before = llvm.atomicrmw add %sleepers, %one seq_cst : !llvm.ptr, i32
  %r = llvm.call @syscall(%futex, %epoch, %wait, %seen, %forever) vararg(!llvm.func<i64 (i64, ...)>)
    : (i64, !llvm.ptr, i32, i32, !llvm.ptr) -> i64
  %after = llvm.atomicrmw sub %sleepers, %one seq_cst : !llvm.ptr, i32
  llvm.return
}

// futex(&epoch, FUTEX_WAKE_PRIVATE, all)
llvm.func internal @wake() {
  %gate = llvm.mlir.addressof @gate : !llvm.ptr
  %epoch = llvm.getelementptr %gate[4] : (!llvm.ptr) -> !llvm.ptr, i8
  %sleepers = llvm.mlir.addressof @sleepers : !llvm.ptr
  %futex = llvm.mlir.constant(@FUTEX@ : i64) : i64
  %wake = llvm.mlir.constant(129 : i32) : i32
  %all = llvm.mlir.constant(256 : i32) : i32
  %zero = llvm.mlir.constant(0 : i32) : i32
  %asleep = llvm.load %sleepers atomic seq_cst {alignment = 4 : i64} : !llvm.ptr -> i32
  %any = arith.cmpi ne, %asleep, %zero : i32
  scf.if %any {
    %r = llvm.call @syscall(%futex, %epoch, %wake, %all) vararg(!llvm.func<i64 (i64, ...)>)
      : (i64, !llvm.ptr, i32, i32) -> i64
  }
  llvm.return
}

llvm.func internal @pause() {
  llvm.inline_asm has_side_effects "@PAUSE@", "~{memory}" : () -> ()
  llvm.return
}

// Leave a processor if this thread runs there and may run on others: without it in the set of processors, Linux moves
// the thread at once. Then the thread gets its set back. A set has 1,024 processors; where there are more, Linux reports
// none, and the thread stays.
llvm.func internal @leave_processor(%processor: i32) {
  %c0 = arith.constant 0 : i32
  %c6 = arith.constant 6 : i32
  %c63 = arith.constant 63 : i32
  %one = arith.constant 1 : i64
  %bytes = arith.constant 128 : i64
  %words = arith.constant 16 : i32
  %set = llvm.alloca %bytes x i8 {alignment = 8 : i64} : (i64) -> !llvm.ptr
  %here = llvm.call @sched_getcpu() : () -> i32
  %same = arith.cmpi eq, %here, %processor : i32
  %word_number = arith.shrsi %here, %c6 : i32
  %is_first = arith.cmpi ult, %word_number, %words : i32
  %leaves = arith.andi %same, %is_first : i1
  scf.if %leaves {
    %r = llvm.call @sched_getaffinity(%c0, %bytes, %set) : (i32, i64, !llvm.ptr) -> i32
    %is_known = arith.cmpi eq, %r, %c0 : i32
    scf.if %is_known {
      %slot = llvm.getelementptr %set[%word_number] : (!llvm.ptr, i32) -> !llvm.ptr, i64
      %word = llvm.load %slot : !llvm.ptr -> i64
      %number = arith.andi %here, %c63 : i32
      %shift = arith.extui %number : i32 to i64
      %bit = arith.shli %one, %shift : i64
      %minus_one = arith.constant -1 : i64
      %every_other = arith.xori %bit, %minus_one : i64
      %others = arith.andi %word, %every_other : i64
      llvm.store %others, %slot : i64, !llvm.ptr
      %moved = llvm.call @sched_setaffinity(%c0, %bytes, %set) : (i32, i64, !llvm.ptr) -> i32
      llvm.store %word, %slot : i64, !llvm.ptr
      %has_moved = arith.cmpi eq, %moved, %c0 : i32         // an empty set is refused
      scf.if %has_moved {
        %s = llvm.call @sched_setaffinity(%c0, %bytes, %set) : (i32, i64, !llvm.ptr) -> i32
      }
    }
  }
  llvm.return
}

// Take items from the front or from the end until none is left, or one from the front has a status. Each counts in
// @taken first. No more than n items are taken from both sides together, so the sides do not overlap.
llvm.func internal @work(%from_front: i1) {
  %ptaken = llvm.mlir.addressof @taken : !llvm.ptr
  %pfrom_end = llvm.mlir.addressof @from_end : !llvm.ptr
  %pcount = llvm.mlir.addressof @count : !llvm.ptr
  %pitem = llvm.mlir.addressof @item : !llvm.ptr
  %pargument = llvm.mlir.addressof @argument : !llvm.ptr
  %pfailure = llvm.mlir.addressof @failure : !llvm.ptr
  %one = llvm.mlir.constant(1 : i64) : i64
  %zero = llvm.mlir.constant(0 : i64) : i64
  %n = llvm.load %pcount : !llvm.ptr -> i64
  %item = llvm.load %pitem : !llvm.ptr -> !llvm.ptr
  %argument = llvm.load %pargument : !llvm.ptr -> !llvm.ptr
  %last = arith.subi %n, %one : i64
  %c32 = arith.constant 32 : i64
  %end = scf.while (%front = %zero) : (i64) -> i64 {
    %before = llvm.atomicrmw add %ptaken, %one monotonic : !llvm.ptr, i64
    %more = arith.cmpi slt, %before, %n : i64
    scf.if %more {
      %i = scf.if %from_front -> (i64) {
        scf.yield %front : i64
      } else {
        %back = llvm.atomicrmw add %pfrom_end, %one monotonic : !llvm.ptr, i64
        %position = arith.subi %last, %back : i64
        scf.yield %position : i64
      }
      %s = llvm.call %item(%argument, %i) : !llvm.ptr, (!llvm.ptr, i64) -> i64
      %bad = arith.cmpi ne, %s, %zero : i64
      scf.if %bad {
        %high = arith.shli %i, %c32 : i64
        %failure = arith.ori %high, %s : i64
        %least = llvm.atomicrmw umin %pfailure, %failure acq_rel : !llvm.ptr, i64
        scf.if %from_front {
          %rest = llvm.atomicrmw add %ptaken, %n monotonic : !llvm.ptr, i64
        }
      }
    }
    scf.condition(%more) %front : i64
  } do {
  ^next(%front: i64):
    %following = arith.addi %front, %one : i64
    scf.yield %following : i64
  }
  llvm.return
}

// One turn: look for an epoch other than the one done, enter if its gate is open, work, leave.
llvm.func internal @worker(%unused: !llvm.ptr) -> !llvm.ptr {
  %pgate = llvm.mlir.addressof @gate : !llvm.ptr
  %pstop = llvm.mlir.addressof @stop : !llvm.ptr
  %pspins = llvm.mlir.addressof @spins : !llvm.ptr
  %null = llvm.mlir.zero : !llvm.ptr
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c32 = arith.constant 32 : i64
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %open = arith.constant 0x80000000 : i64
  %spins = llvm.load %pspins : !llvm.ptr -> i32
  %end:2 = scf.while (%done = %c0, %idle = %c0) : (i32, i32) -> (i32, i32) {
    %stop = llvm.load %pstop atomic acquire {alignment = 4 : i64} : !llvm.ptr -> i32
    %go = arith.cmpi eq, %stop, %c0 : i32
    scf.condition(%go) %done, %idle : i32, i32
  } do {
  ^turn(%done: i32, %idle: i32):
    %gate = llvm.load %pgate atomic seq_cst {alignment = 8 : i64} : !llvm.ptr -> i64
    %high = arith.shrui %gate, %c32 : i64
    %epoch = arith.trunci %high : i64 to i32
    %bit = arith.andi %gate, %open : i64
    %is_open = arith.cmpi ne, %bit, %zero : i64
    %is_new = arith.cmpi ne, %epoch, %done : i32
    %try = arith.andi %is_open, %is_new : i1
    %state:2 = scf.if %try -> (i32, i32) {
      %inside = arith.addi %gate, %one : i64
      %x = llvm.cmpxchg %pgate, %gate, %inside acq_rel acquire : !llvm.ptr, i64
      %entered = llvm.extractvalue %x[1] : !llvm.struct<(i64, i1)>
      %now = arith.select %entered, %epoch, %done : i32
      scf.if %entered {
        %pprocessor = llvm.mlir.addressof @processor : !llvm.ptr
        %of_caller = llvm.load %pprocessor : !llvm.ptr -> i32
        llvm.call @leave_processor(%of_caller) : (i32) -> ()
        %from_end = arith.constant false
        llvm.call @work(%from_end) : (i1) -> ()
        %left = llvm.atomicrmw sub %pgate, %one acq_rel : !llvm.ptr, i64
      }
      scf.yield %now, %c0 : i32, i32
    } else {
      %tired = arith.cmpi sge, %idle, %spins : i32
      %turns = scf.if %tired -> (i32) {
        llvm.call @sleep(%epoch) : (i32) -> ()
        scf.yield %c0 : i32
      } else {
        llvm.call @pause() : () -> ()
        %more = arith.addi %idle, %c1 : i32
        scf.yield %more : i32
      }
      scf.yield %done, %turns : i32, i32
    }
    scf.yield %state#0, %state#1 : i32, i32
  }
  llvm.return %null : !llvm.ptr
}

// item(argument, i) for every i below count, in any order, on any thread; a status is below 2^31. The result is -1, and
// nothing has been done, when the caller would be alone: with no workers, one item, or during another job.
llvm.func internal @nki_parallel_for(%count: i64, %item: !llvm.ptr, %argument: !llvm.ptr) -> i64 {
  %pgate = llvm.mlir.addressof @gate : !llvm.ptr
  %ptaken = llvm.mlir.addressof @taken : !llvm.ptr
  %pfrom_end = llvm.mlir.addressof @from_end : !llvm.ptr
  %pbusy = llvm.mlir.addressof @busy : !llvm.ptr
  %pfailure = llvm.mlir.addressof @failure : !llvm.ptr
  %pcount = llvm.mlir.addressof @count : !llvm.ptr
  %pitem = llvm.mlir.addressof @item : !llvm.ptr
  %pargument = llvm.mlir.addressof @argument : !llvm.ptr
  %pworkers = llvm.mlir.addressof @workers : !llvm.ptr
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %epoch_one = arith.constant 0x100000000 : i64
  %epochs = arith.constant 0xFFFFFFFF00000000 : i64
  %open = arith.constant 0x80000000 : i64
  %closed = arith.constant 0xFFFFFFFF7FFFFFFF : i64
  %insiders = arith.constant 0x7FFFFFFF : i64
  %low = arith.constant 0xFFFFFFFF : i64
  %none = arith.constant -1 : i64
  %workers = llvm.load %pworkers : !llvm.ptr -> i32
  %some = arith.cmpi ne, %workers, %c0 : i32
  %many = arith.cmpi sgt, %count, %one : i64
  %want = arith.andi %some, %many : i1
  %mine = scf.if %want -> (i1) {
    %was = llvm.atomicrmw xchg %pbusy, %c1 acquire : !llvm.ptr, i32
    %free = arith.cmpi eq, %was, %c0 : i32
    scf.yield %free : i1
  } else {
    %no = arith.constant false
    scf.yield %no : i1
  }
  %result = scf.if %mine -> (i64) {
    llvm.store %count, %pcount : i64, !llvm.ptr
    llvm.store %item, %pitem : !llvm.ptr, !llvm.ptr
    llvm.store %argument, %pargument : !llvm.ptr, !llvm.ptr
    llvm.store %zero, %ptaken : i64, !llvm.ptr
    llvm.store %zero, %pfrom_end : i64, !llvm.ptr
    llvm.store %none, %pfailure : i64, !llvm.ptr
    %pprocessor = llvm.mlir.addressof @processor : !llvm.ptr
    %here = llvm.call @sched_getcpu() : () -> i32
    llvm.store %here, %pprocessor : i32, !llvm.ptr
    %old = llvm.load %pgate atomic acquire {alignment = 8 : i64} : !llvm.ptr -> i64
    %kept = arith.andi %old, %epochs : i64
    %stepped = arith.addi %kept, %epoch_one : i64
    %opened = arith.ori %stepped, %open : i64
    %published = llvm.atomicrmw xchg %pgate, %opened seq_cst : !llvm.ptr, i64
    llvm.call @wake() : () -> ()
    %from_front = arith.constant true
    llvm.call @work(%from_front) : (i1) -> ()
    %shut = llvm.atomicrmw _and %pgate, %closed acq_rel : !llvm.ptr, i64
    %patience = arith.constant 4000 : i32
    %waited = scf.while (%turn = %c0) : (i32) -> (i32) {
      %now = llvm.load %pgate atomic acquire {alignment = 8 : i64} : !llvm.ptr -> i64
      %inside = arith.andi %now, %insiders : i64
      %wait = arith.cmpi ne, %inside, %zero : i64
      scf.condition(%wait) %turn : i32
    } do {
    ^wait(%turn: i32):
      %long = arith.cmpi sgt, %turn, %patience : i32
      scf.if %long {                                    // a worker lost its CPU in the middle of an item: give it ours
        %r = llvm.call @sched_yield() : () -> i32
      } else {
        llvm.call @pause() : () -> ()
      }
      %after = arith.addi %turn, %c1 : i32
      scf.yield %after : i32
    }
    %failure = llvm.load %pfailure atomic acquire {alignment = 8 : i64} : !llvm.ptr -> i64
    %fine = arith.cmpi eq, %failure, %none : i64
    %status = arith.andi %failure, %low : i64
    %s = arith.select %fine, %zero, %status : i64
    llvm.store %c0, %pbusy atomic release {alignment = 4 : i64} : i32, !llvm.ptr
    scf.yield %s : i64
  } else {
    %alone = arith.constant -1 : i64
    scf.yield %alone : i64
  }
  llvm.return %result : i64
}

// Start workers; returns how many run. With none, everything runs in the caller.
llvm.func internal @nki_pool_start(%wanted: i32) -> i32 {
  %pworkers = llvm.mlir.addressof @workers : !llvm.ptr
  %pthreads = llvm.mlir.addressof @threads : !llvm.ptr
  %pstop = llvm.mlir.addressof @stop : !llvm.ptr
  %main = llvm.mlir.addressof @worker : !llvm.ptr
  %null = llvm.mlir.zero : !llvm.ptr
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  llvm.store %c0, %pstop atomic release {alignment = 4 : i64} : i32, !llvm.ptr
  %started = scf.while (%i = %c0) : (i32) -> (i32) {
    %more = arith.cmpi slt, %i, %wanted : i32
    %ok = scf.if %more -> (i1) {
      %slot = llvm.getelementptr %pthreads[%i] : (!llvm.ptr, i32) -> !llvm.ptr, i64
      %r = llvm.call @pthread_create(%slot, %null, %main, %null) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
      %made = arith.cmpi eq, %r, %c0 : i32
      scf.yield %made : i1
    } else {
      scf.yield %more : i1
    }
    scf.condition(%ok) %i : i32
  } do {
  ^made(%i: i32):
    %j = arith.addi %i, %c1 : i32
    scf.yield %j : i32
  }
  llvm.store %started, %pworkers : i32, !llvm.ptr
  llvm.return %started : i32
}

// Stop and join all workers; no job may be running.
llvm.func internal @nki_pool_stop() {
  %pgate = llvm.mlir.addressof @gate : !llvm.ptr
  %pworkers = llvm.mlir.addressof @workers : !llvm.ptr
  %pthreads = llvm.mlir.addressof @threads : !llvm.ptr
  %pstop = llvm.mlir.addressof @stop : !llvm.ptr
  %null = llvm.mlir.zero : !llvm.ptr
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %epoch_one = arith.constant 0x100000000 : i64
  llvm.store %c1, %pstop atomic release {alignment = 4 : i64} : i32, !llvm.ptr
  %x = llvm.atomicrmw add %pgate, %epoch_one seq_cst : !llvm.ptr, i64
  llvm.call @wake() : () -> ()
  %n = llvm.load %pworkers : !llvm.ptr -> i32
  scf.for %i = %c0 to %n step %c1 : i32 {
    %slot = llvm.getelementptr %pthreads[%i] : (!llvm.ptr, i32) -> !llvm.ptr, i64
    %t = llvm.load %slot : !llvm.ptr -> i64
    %r = llvm.call @pthread_join(%t, %null) : (i64, !llvm.ptr) -> i32
  }
  llvm.store %c0, %pworkers : i32, !llvm.ptr
  llvm.return
}

// A forked child has no workers, and perhaps half a job of another thread of its parent: forget both.
llvm.func internal @nki_pool_forget() {
  %pgate = llvm.mlir.addressof @gate : !llvm.ptr
  %pworkers = llvm.mlir.addressof @workers : !llvm.ptr
  %pbusy = llvm.mlir.addressof @busy : !llvm.ptr
  %psleepers = llvm.mlir.addressof @sleepers : !llvm.ptr
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0 : i64
  llvm.store %zero, %pgate : i64, !llvm.ptr
  llvm.store %c0, %pworkers : i32, !llvm.ptr
  llvm.store %c0, %pbusy : i32, !llvm.ptr
  llvm.store %c0, %psleepers : i32, !llvm.ptr
  llvm.return
}
