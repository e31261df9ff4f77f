// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The machine that runs a compiled kernel: memory of a call, programs, and the instructions that are not tile operations.
//
// A program is a sequence of words. An instruction in it is
//
//   function, number of arguments, then per argument: constant, number of terms, then per term: slot, factor
//
// An argument's value is constant + sum(frame[slot] * factor); the function gets the address of the values and returns a
// status. 0 goes on, a negative status -1 - w goes on at word w, any other ends the program. The function 0 ends it, too.
//
// The frame has slots for its own address, the memory of this program, its words, program ids, the addresses of the
// kernel's arrays, and loop variables, in this order.

// -- items: on the pool if there is one and it is free, else here in order --------------------------------------------

llvm.mlir.global internal @pool() : !llvm.ptr { %z = llvm.mlir.zero : !llvm.ptr  llvm.return %z : !llvm.ptr }

// The pool's parallel_for.
llvm.func internal @nki_use_pool(%parallel_for: !llvm.ptr) {
  %pool = llvm.mlir.addressof @pool : !llvm.ptr
  llvm.store %parallel_for, %pool : !llvm.ptr, !llvm.ptr
  llvm.return
}

llvm.func internal @parallel_for(%count: i64, %item: !llvm.ptr, %argument: !llvm.ptr) -> i64 {
  %alone = arith.constant -1 : i64
  %null = llvm.mlir.zero : !llvm.ptr
  %pool = llvm.mlir.addressof @pool : !llvm.ptr
  %f = llvm.load %pool : !llvm.ptr -> !llvm.ptr
  %has = llvm.icmp "ne" %f, %null : !llvm.ptr
  %tried = scf.if %has -> (i64) {
    %s = llvm.call %f(%count, %item, %argument) : !llvm.ptr, (i64, !llvm.ptr, !llvm.ptr) -> i64
    scf.yield %s : i64
  } else {
    scf.yield %alone : i64
  }
  %refused = arith.cmpi eq, %tried, %alone : i64
  %status = scf.if %refused -> (i64) {
    %s = llvm.call @serial_for(%count, %item, %argument) : (i64, !llvm.ptr, !llvm.ptr) -> i64
    scf.yield %s : i64
  } else {
    scf.yield %tried : i64
  }
  llvm.return %status : i64
}

llvm.func internal @serial_for(%count: i64, %item: !llvm.ptr, %argument: !llvm.ptr) -> i64 {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %all:2 = scf.while (%i = %zero, %s = %zero) : (i64, i64) -> (i64, i64) {
    %more = arith.cmpi slt, %i, %count : i64
    %fine = arith.cmpi eq, %s, %zero : i64
    %go = arith.andi %more, %fine : i1
    scf.condition(%go) %i, %s : i64, i64
  } do {
  ^each(%i: i64, %s: i64):
    %t = llvm.call %item(%argument, %i) : !llvm.ptr, (!llvm.ptr, i64) -> i64
    %j = arith.addi %i, %one : i64
    scf.yield %j, %t : i64, i64
  }
  llvm.return %all#1 : i64
}

// -- launches that may take long: their tickets, and what ends them (interruption.mlir) --------------------------------

llvm.mlir.global internal @watched(0 : i64) : i64       // the number of running ones
llvm.mlir.global internal @interruption() : !llvm.ptr { %z = llvm.mlir.zero : !llvm.ptr  llvm.return %z : !llvm.ptr }
llvm.mlir.global internal @next_ticket() : !llvm.ptr { %z = llvm.mlir.zero : !llvm.ptr  llvm.return %z : !llvm.ptr }
llvm.mlir.global internal @poll_for() : !llvm.ptr { %z = llvm.mlir.zero : !llvm.ptr  llvm.return %z : !llvm.ptr }

// The functions of interruption.mlir, before the first kernel that may take long.
llvm.func internal @nki_use_interruption(%interruption: !llvm.ptr, %next_ticket: !llvm.ptr, %poll_for: !llvm.ptr) {
  %pinterruption = llvm.mlir.addressof @interruption : !llvm.ptr
  %pnext_ticket = llvm.mlir.addressof @next_ticket : !llvm.ptr
  %ppoll_for = llvm.mlir.addressof @poll_for : !llvm.ptr
  llvm.store %interruption, %pinterruption : !llvm.ptr, !llvm.ptr
  llvm.store %next_ticket, %pnext_ticket : !llvm.ptr, !llvm.ptr
  llvm.store %poll_for, %ppoll_for : !llvm.ptr, !llvm.ptr
  llvm.return
}

// The status, or the status of an interruption of the launch with the ticket.
llvm.func internal @unless_interrupted(%status: i64, %ticket: i64) -> i64 {
  %zero = arith.constant 0 : i64
  %pwatched = llvm.mlir.addressof @watched : !llvm.ptr
  %watched = llvm.load %pwatched atomic monotonic {alignment = 8 : i64} : !llvm.ptr -> i64
  %some = arith.cmpi ne, %watched, %zero : i64
  %fine = arith.cmpi eq, %status, %zero : i64
  %look = arith.andi %some, %fine : i1
  %result = scf.if %look -> (i64) {
    %pinterruption = llvm.mlir.addressof @interruption : !llvm.ptr
    %f = llvm.load %pinterruption : !llvm.ptr -> !llvm.ptr
    %s = llvm.call %f(%ticket) : !llvm.ptr, (i64) -> i64
    scf.yield %s : i64
  } else {
    scf.yield %status : i64
  }
  llvm.return %result : i64
}

// The ticket of a launch that begins.
llvm.func internal @begin(%kernel: !llvm.ptr) -> i64 {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %never = arith.constant 0x7FFFFFFFFFFFFFFF : i64
  %p11 = llvm.getelementptr %kernel[11] : (!llvm.ptr) -> !llvm.ptr, i64
  %may_be_long = llvm.load %p11 : !llvm.ptr -> i64
  %long = arith.cmpi ne, %may_be_long, %zero : i64
  %ticket = scf.if %long -> (i64) {
    %pwatched = llvm.mlir.addressof @watched : !llvm.ptr
    %pnext_ticket = llvm.mlir.addressof @next_ticket : !llvm.ptr
    %f = llvm.load %pnext_ticket : !llvm.ptr -> !llvm.ptr
    %before = llvm.atomicrmw add %pwatched, %one seq_cst : !llvm.ptr, i64
    %t = llvm.call %f() : !llvm.ptr, () -> i64
    scf.yield %t : i64
  } else {
    scf.yield %never : i64
  }
  llvm.return %ticket : i64
}

// The launch with the ticket has ended.
llvm.func internal @end(%ticket: i64) {
  %one = arith.constant 1 : i64
  %never = arith.constant 0x7FFFFFFFFFFFFFFF : i64
  %long = arith.cmpi ne, %ticket, %never : i64
  scf.if %long {
    %pwatched = llvm.mlir.addressof @watched : !llvm.ptr
    %after = llvm.atomicrmw sub %pwatched, %one seq_cst : !llvm.ptr, i64
  }
  llvm.return
}

// -- programs ---------------------------------------------------------------------------------------------------------

llvm.func internal @run(%frame: !llvm.ptr, %words: !llvm.ptr, %start: i64, %ticket: i64) -> i64 {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %two = arith.constant 2 : i64
  %minus = arith.constant -1 : i64
  %room = arith.constant 65 : i64                      // the values, and the launch's ticket
  %arguments = llvm.alloca %room x i64 : (i64) -> !llvm.ptr
  %p64 = llvm.getelementptr %arguments[64] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %ticket, %p64 : i64, !llvm.ptr
  %end:2 = scf.while (%at = %start, %status = %zero) : (i64, i64) -> (i64, i64) {
    %p = llvm.getelementptr %words[%at] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %f = llvm.load %p : !llvm.ptr -> i64
    %more = arith.cmpi ne, %f, %zero : i64
    %fine = arith.cmpi eq, %status, %zero : i64
    %go = arith.andi %more, %fine : i1
    scf.condition(%go) %at, %status : i64, i64
  } do {
  ^instruction(%at: i64, %status: i64):
    %p = llvm.getelementptr %words[%at] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %f = llvm.load %p : !llvm.ptr -> !llvm.ptr
    %pn = llvm.getelementptr %p[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %n = llvm.load %pn : !llvm.ptr -> i64
    %first = llvm.getelementptr %p[2] : (!llvm.ptr) -> !llvm.ptr, i64
    %after = scf.for %k = %zero to %n step %one iter_args(%w = %first) -> (!llvm.ptr) : i64 {
      %constant = llvm.load %w : !llvm.ptr -> i64
      %pt = llvm.getelementptr %w[1] : (!llvm.ptr) -> !llvm.ptr, i64
      %terms = llvm.load %pt : !llvm.ptr -> i64
      %w2 = llvm.getelementptr %w[2] : (!llvm.ptr) -> !llvm.ptr, i64
      %sum:2 = scf.for %t = %zero to %terms step %one iter_args(%total = %constant, %v = %w2) -> (i64, !llvm.ptr) : i64 {
        %slot = llvm.load %v : !llvm.ptr -> i64
        %pf = llvm.getelementptr %v[1] : (!llvm.ptr) -> !llvm.ptr, i64
        %factor = llvm.load %pf : !llvm.ptr -> i64
        %ps = llvm.getelementptr %frame[%slot] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %value = llvm.load %ps : !llvm.ptr -> i64
        %product = arith.muli %value, %factor : i64
        %new = arith.addi %total, %product : i64
        %v2 = llvm.getelementptr %v[2] : (!llvm.ptr) -> !llvm.ptr, i64
        scf.yield %new, %v2 : i64, !llvm.ptr
      }
      %pa = llvm.getelementptr %arguments[%k] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      llvm.store %sum#0, %pa : i64, !llvm.ptr
      scf.yield %sum#1 : !llvm.ptr
    }
    %r = llvm.call %f(%arguments) : !llvm.ptr, (!llvm.ptr) -> i64
    %jump = arith.cmpi slt, %r, %zero : i64
    %target = arith.subi %minus, %r : i64
    %here = llvm.ptrtoint %after : !llvm.ptr to i64
    %base = llvm.ptrtoint %words : !llvm.ptr to i64
    %bytes = arith.subi %here, %base : i64
    %three = arith.constant 3 : i64
    %next = arith.shrui %bytes, %three : i64
    %new_at = arith.select %jump, %target, %next : i64
    %own = arith.select %jump, %zero, %r : i64
    %new_status = llvm.call @unless_interrupted(%own, %ticket) : (i64, i64) -> i64
    scf.yield %new_at, %new_status : i64, i64
  }
  llvm.return %end#1 : i64
}

// One program of a grid. The argument is {kernel, addresses of its arrays, ticket}; a kernel is
//   {programs, neighbors that one thread runs or 0 for all, bytes of memory, slots, grid axes, arrays, code of each program or 0, code, pairs, number of
//    pairs, function, whether it may take long, extents...}
// A pair is {array, bytes, array, bytes}: two arrays that must not overlap. Where some do, the launch is
// ``i32 function(addresses)``.
llvm.func internal @program(%argument: !llvm.ptr, %number: i64) -> i64 {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %two = arith.constant 2 : i64
  %out_of_memory = arith.constant 32768 : i64
  %null = llvm.mlir.zero : !llvm.ptr
  %kernel = llvm.load %argument : !llvm.ptr -> !llvm.ptr
  %pdata = llvm.getelementptr %argument[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %data = llvm.load %pdata : !llvm.ptr -> !llvm.ptr
  %pticket = llvm.getelementptr %argument[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %ticket = llvm.load %pticket : !llvm.ptr -> i64
  %p2 = llvm.getelementptr %kernel[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %p3 = llvm.getelementptr %kernel[3] : (!llvm.ptr) -> !llvm.ptr, i64
  %p4 = llvm.getelementptr %kernel[4] : (!llvm.ptr) -> !llvm.ptr, i64
  %p5 = llvm.getelementptr %kernel[5] : (!llvm.ptr) -> !llvm.ptr, i64
  %p6 = llvm.getelementptr %kernel[6] : (!llvm.ptr) -> !llvm.ptr, i64
  %p7 = llvm.getelementptr %kernel[7] : (!llvm.ptr) -> !llvm.ptr, i64
  %extents = llvm.getelementptr %kernel[12] : (!llvm.ptr) -> !llvm.ptr, i64
  %size = llvm.load %p2 : !llvm.ptr -> i64
  %slots = llvm.load %p3 : !llvm.ptr -> i64
  %axes = llvm.load %p4 : !llvm.ptr -> i64
  %arrays = llvm.load %p5 : !llvm.ptr -> i64
  %codes = llvm.load %p6 : !llvm.ptr -> !llvm.ptr
  %frame = llvm.call @acquire(%size) : (i64) -> !llvm.ptr
  %failed = llvm.icmp "eq" %frame, %null : !llvm.ptr
  %result = scf.if %failed -> (i64) {
    scf.yield %out_of_memory : i64
  } else {
    %memory = llvm.getelementptr %frame[%slots] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    llvm.store %frame, %frame : !llvm.ptr, !llvm.ptr
    %f1 = llvm.getelementptr %frame[1] : (!llvm.ptr) -> !llvm.ptr, i64
    llvm.store %memory, %f1 : !llvm.ptr, !llvm.ptr
    %f2 = llvm.getelementptr %frame[2] : (!llvm.ptr) -> !llvm.ptr, i64
    %ids = llvm.getelementptr %frame[3] : (!llvm.ptr) -> !llvm.ptr, i64
    %rest = scf.for %k = %zero to %axes step %one iter_args(%left = %number) -> (i64) : i64 {    // last axis first
      %from_end = arith.subi %axes, %k : i64
      %axis = arith.subi %from_end, %one : i64
      %pe = llvm.getelementptr %extents[%axis] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %extent = llvm.load %pe : !llvm.ptr -> i64
      %id = arith.remui %left, %extent : i64
      %pi = llvm.getelementptr %ids[%axis] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      llvm.store %id, %pi : i64, !llvm.ptr
      %next = arith.divui %left, %extent : i64
      scf.yield %next : i64
    }
    %places = llvm.getelementptr %ids[%axes] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    scf.for %k = %zero to %arrays step %one : i64 {
      %from = llvm.getelementptr %data[%k] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %to = llvm.getelementptr %places[%k] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %address = llvm.load %from : !llvm.ptr -> i64
      llvm.store %address, %to : i64, !llvm.ptr
    }
    %own = llvm.icmp "ne" %codes, %null : !llvm.ptr
    %pc = llvm.getelementptr %codes[%number] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %where = llvm.select %own, %pc, %p7 : i1, !llvm.ptr
    %words = llvm.load %where : !llvm.ptr -> !llvm.ptr
    llvm.store %words, %f2 : !llvm.ptr, !llvm.ptr
    %status = llvm.call @run(%frame, %words, %zero, %ticket) : (!llvm.ptr, !llvm.ptr, i64, i64) -> i64
    llvm.call @release(%frame) : (!llvm.ptr) -> ()
    scf.yield %status : i64
  }
  llvm.return %result : i64
}

// Neighboring programs, one after the other up to the first status other than 0. The argument is the argument of @program.
llvm.func internal @neighbors(%argument: !llvm.ptr, %number: i64) -> i64 {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %kernel = llvm.load %argument : !llvm.ptr -> !llvm.ptr
  %p1 = llvm.getelementptr %kernel[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %count = llvm.load %p1 : !llvm.ptr -> i64
  %start = arith.muli %number, %count : i64
  %end = arith.addi %start, %count : i64
  %result:2 = scf.while (%k = %start, %status = %zero) : (i64, i64) -> (i64, i64) {
    %more = arith.cmpi slt, %k, %end : i64
    %fine = arith.cmpi eq, %status, %zero : i64
    %go = arith.andi %more, %fine : i1
    scf.condition(%go) %k, %status : i64, i64
  } do {
  ^program(%k: i64, %status: i64):
    %s = llvm.call @program(%argument, %k) : (!llvm.ptr, i64) -> i64
    %next = arith.addi %k, %one : i64
    scf.yield %next, %s : i64, i64
  }
  llvm.return %result#1 : i64
}

// Whether some pair of arrays overlaps: 1 or 0.
llvm.func internal @nki_overlap(%kernel: !llvm.ptr, %data: !llvm.ptr) -> i32 {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %four = arith.constant 4 : i64
  %none = arith.constant 0 : i32
  %p8 = llvm.getelementptr %kernel[8] : (!llvm.ptr) -> !llvm.ptr, i64
  %p9 = llvm.getelementptr %kernel[9] : (!llvm.ptr) -> !llvm.ptr, i64
  %pairs = llvm.load %p8 : !llvm.ptr -> !llvm.ptr
  %count = llvm.load %p9 : !llvm.ptr -> i64
  %found = scf.for %k = %zero to %count step %one iter_args(%some = %none) -> (i32) : i64 {
    %first = arith.muli %k, %four : i64
    %q0 = llvm.getelementptr %pairs[%first] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %q1 = llvm.getelementptr %q0[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %q2 = llvm.getelementptr %q0[2] : (!llvm.ptr) -> !llvm.ptr, i64
    %q3 = llvm.getelementptr %q0[3] : (!llvm.ptr) -> !llvm.ptr, i64
    %number_a = llvm.load %q0 : !llvm.ptr -> i64
    %bytes_a = llvm.load %q1 : !llvm.ptr -> i64
    %number_b = llvm.load %q2 : !llvm.ptr -> i64
    %bytes_b = llvm.load %q3 : !llvm.ptr -> i64
    %pa = llvm.getelementptr %data[%number_a] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %pb = llvm.getelementptr %data[%number_b] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %a = llvm.load %pa : !llvm.ptr -> i64
    %b = llvm.load %pb : !llvm.ptr -> i64
    %end_a = arith.addi %a, %bytes_a : i64
    %end_b = arith.addi %b, %bytes_b : i64
    %a_first = arith.cmpi ult, %a, %end_b : i64
    %b_first = arith.cmpi ult, %b, %end_a : i64
    %bit = arith.andi %a_first, %b_first : i1
    %overlap = arith.extui %bit : i1 to i32
    %either = arith.ori %some, %overlap : i32
    scf.yield %either : i32
  }
  llvm.return %found : i32
}

// The whole grid.
llvm.func internal @nki_launch(%kernel: !llvm.ptr, %data: !llvm.ptr) -> i32 {
  %ticket = llvm.call @begin(%kernel) : (!llvm.ptr) -> i64
  %status = llvm.call @launch(%kernel, %data, %ticket) : (!llvm.ptr, !llvm.ptr, i64) -> i32
  llvm.call @end(%ticket) : (i64) -> ()
  llvm.return %status : i32
}

// The whole grid, on Python's main thread. A launch of a handler, in the middle of another one, is possible.
llvm.func internal @nki_launch_watched(%kernel: !llvm.ptr, %data: !llvm.ptr) -> i32 {
  %ppoll_for = llvm.mlir.addressof @poll_for : !llvm.ptr
  %poll_for = llvm.load %ppoll_for : !llvm.ptr -> !llvm.ptr
  %ticket = llvm.call @begin(%kernel) : (!llvm.ptr) -> i64
  %outer = llvm.call %poll_for(%ticket) : !llvm.ptr, (i64) -> i64
  %status = llvm.call @launch(%kernel, %data, %ticket) : (!llvm.ptr, !llvm.ptr, i64) -> i32
  %ended = llvm.call %poll_for(%outer) : !llvm.ptr, (i64) -> i64
  llvm.call @end(%ticket) : (i64) -> ()
  llvm.return %status : i32
}

llvm.func internal @launch(%kernel: !llvm.ptr, %data: !llvm.ptr, %ticket: i64) -> i32 {
  %none = arith.constant 0 : i32
  %overlap = llvm.call @nki_overlap(%kernel, %data) : (!llvm.ptr, !llvm.ptr) -> i32
  %some = arith.cmpi ne, %overlap, %none : i32
  %result = scf.if %some -> (i32) {
    %p10 = llvm.getelementptr %kernel[10] : (!llvm.ptr) -> !llvm.ptr, i64
    %function = llvm.load %p10 : !llvm.ptr -> !llvm.ptr
    %s = llvm.call %function(%data) : !llvm.ptr, (!llvm.ptr) -> i32
    scf.yield %s : i32
  } else {
    %s = llvm.call @grid(%kernel, %data, %ticket) : (!llvm.ptr, !llvm.ptr, i64) -> i32
    scf.yield %s : i32
  }
  llvm.return %result : i32
}

// The data addresses of NumPy arrays, given the addresses of these objects.
llvm.func internal @data_of(%kernel: !llvm.ptr, %objects: !llvm.ptr, %data: !llvm.ptr) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %p5 = llvm.getelementptr %kernel[5] : (!llvm.ptr) -> !llvm.ptr, i64
  %arrays = llvm.load %p5 : !llvm.ptr -> i64
  scf.for %k = %zero to %arrays step %one : i64 {
    %from = llvm.getelementptr %objects[%k] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %to = llvm.getelementptr %data[%k] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %object = llvm.load %from : !llvm.ptr -> !llvm.ptr
    %place = llvm.getelementptr %object[@ARRAY_DATA@] : (!llvm.ptr) -> !llvm.ptr, i8
    %address = llvm.load %place : !llvm.ptr -> i64
    llvm.store %address, %to : i64, !llvm.ptr
  }
  llvm.return
}

// The whole grid, on NumPy arrays.
llvm.func internal @nki_launch_arrays(%kernel: !llvm.ptr, %objects: !llvm.ptr) -> i32 {
  %p5 = llvm.getelementptr %kernel[5] : (!llvm.ptr) -> !llvm.ptr, i64
  %arrays = llvm.load %p5 : !llvm.ptr -> i64
  %data = llvm.alloca %arrays x i64 : (i64) -> !llvm.ptr
  llvm.call @data_of(%kernel, %objects, %data) : (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
  %status = llvm.call @nki_launch(%kernel, %data) : (!llvm.ptr, !llvm.ptr) -> i32
  llvm.return %status : i32
}

llvm.func internal @grid(%kernel: !llvm.ptr, %data: !llvm.ptr, %ticket: i64) -> i32 {
  %zero = arith.constant 0 : i64
  %three = arith.constant 3 : i64
  %argument = llvm.alloca %three x i64 : (i64) -> !llvm.ptr
  %a1 = llvm.getelementptr %argument[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %a2 = llvm.getelementptr %argument[2] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %kernel, %argument : !llvm.ptr, !llvm.ptr
  llvm.store %data, %a1 : !llvm.ptr, !llvm.ptr
  llvm.store %ticket, %a2 : i64, !llvm.ptr
  %programs = llvm.load %kernel : !llvm.ptr -> i64
  %p1 = llvm.getelementptr %kernel[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %neighbors = llvm.load %p1 : !llvm.ptr -> i64
  %several = arith.cmpi ne, %neighbors, %zero : i64
  %status = scf.if %several -> (i64) {
    %items = arith.divui %programs, %neighbors : i64
    %item = llvm.mlir.addressof @neighbors : !llvm.ptr
    %s = llvm.call @parallel_for(%items, %item, %argument) : (i64, !llvm.ptr, !llvm.ptr) -> i64
    scf.yield %s : i64
  } else {
    %item = llvm.mlir.addressof @program : !llvm.ptr
    %s = llvm.call @serial_for(%programs, %item, %argument) : (i64, !llvm.ptr, !llvm.ptr) -> i64
    scf.yield %s : i64
  }
  %result = arith.trunci %status : i64 to i32
  llvm.return %result : i32
}

// One program of the grid.
llvm.func internal @nki_launch_one(%kernel: !llvm.ptr, %data: !llvm.ptr, %number: i64) -> i32 {
  %ticket = llvm.call @begin(%kernel) : (!llvm.ptr) -> i64
  %three = arith.constant 3 : i64
  %argument = llvm.alloca %three x i64 : (i64) -> !llvm.ptr
  %a1 = llvm.getelementptr %argument[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %a2 = llvm.getelementptr %argument[2] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %kernel, %argument : !llvm.ptr, !llvm.ptr
  llvm.store %data, %a1 : !llvm.ptr, !llvm.ptr
  llvm.store %ticket, %a2 : i64, !llvm.ptr
  %status = llvm.call @program(%argument, %number) : (!llvm.ptr, i64) -> i64
  llvm.call @end(%ticket) : (i64) -> ()
  %result = arith.trunci %status : i64 to i32
  llvm.return %result : i32
}

// -- loops and branches -----------------------------------------------------------------------------------------------

// (slot, value): frame[slot] = value
llvm.func internal @nki_set(%arguments: !llvm.ptr) -> i64 {
  %zero = arith.constant 0 : i64
  %slot = llvm.load %arguments : !llvm.ptr -> !llvm.ptr
  %p1 = llvm.getelementptr %arguments[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %value = llvm.load %p1 : !llvm.ptr -> i64
  llvm.store %value, %slot : i64, !llvm.ptr
  llvm.return %zero : i64
}

// (address, bytes): a buffer that may be read before all of it is written
llvm.func internal @nki_zero(%arguments: !llvm.ptr) -> i64 {
  %zero = arith.constant 0 : i64
  %byte = arith.constant 0 : i8
  %address = llvm.load %arguments : !llvm.ptr -> !llvm.ptr
  %p1 = llvm.getelementptr %arguments[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %bytes = llvm.load %p1 : !llvm.ptr -> i64
  "llvm.intr.memset"(%address, %byte, %bytes) <{isVolatile = false}> : (!llvm.ptr, i8, i64) -> ()
  llvm.return %zero : i64
}

// (slot, step, end, word): the loop variable's next value; back to the word if there is one
llvm.func internal @nki_next(%arguments: !llvm.ptr) -> i64 {
  %zero = arith.constant 0 : i64
  %minus = arith.constant -1 : i64
  %slot = llvm.load %arguments : !llvm.ptr -> !llvm.ptr
  %p1 = llvm.getelementptr %arguments[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %p2 = llvm.getelementptr %arguments[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %p3 = llvm.getelementptr %arguments[3] : (!llvm.ptr) -> !llvm.ptr, i64
  %step = llvm.load %p1 : !llvm.ptr -> i64
  %end = llvm.load %p2 : !llvm.ptr -> i64
  %word = llvm.load %p3 : !llvm.ptr -> i64
  %old = llvm.load %slot : !llvm.ptr -> i64
  %new = arith.addi %old, %step : i64
  llvm.store %new, %slot : i64, !llvm.ptr
  %more = arith.cmpi slt, %new, %end : i64
  %back = arith.subi %minus, %word : i64
  %status = arith.select %more, %back, %zero : i64
  llvm.return %status : i64
}

// (condition, word): to the word if the condition is 0
llvm.func internal @nki_unless(%arguments: !llvm.ptr) -> i64 {
  %zero = arith.constant 0 : i64
  %minus = arith.constant -1 : i64
  %condition = llvm.load %arguments : !llvm.ptr -> i64
  %p1 = llvm.getelementptr %arguments[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %word = llvm.load %p1 : !llvm.ptr -> i64
  %false = arith.cmpi eq, %condition, %zero : i64
  %there = arith.subi %minus, %word : i64
  %status = arith.select %false, %there, %zero : i64
  llvm.return %status : i64
}

// (value, site): fails at the site if the value is negative; the status also says by how much
llvm.func internal @nki_check(%arguments: !llvm.ptr) -> i64 {
  %zero = arith.constant 0 : i64
  %most = arith.constant 65535 : i64
  %bits = arith.constant 15 : i64
  %value = llvm.load %arguments : !llvm.ptr -> i64
  %p1 = llvm.getelementptr %arguments[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %site = llvm.load %p1 : !llvm.ptr -> i64
  %excess = arith.subi %zero, %value : i64
  %limited = arith.minsi %excess, %most : i64
  %high = arith.shli %limited, %bits : i64
  %failure = arith.ori %high, %site : i64
  %bad = arith.cmpi slt, %value, %zero : i64
  %status = arith.select %bad, %failure, %zero : i64
  llvm.return %status : i64
}

// (frame, words, start, slot of the variable, first value, step, iterations, slots, bytes of an iteration's memory, end):
// the iterations of the loop whose body starts at that word, on the pool; then on at the end
llvm.func internal @nki_parallel(%arguments: !llvm.ptr) -> i64 {
  %zero = arith.constant 0 : i64
  %minus = arith.constant -1 : i64
  %p6 = llvm.getelementptr %arguments[6] : (!llvm.ptr) -> !llvm.ptr, i64
  %count = llvm.load %p6 : !llvm.ptr -> i64
  %p9 = llvm.getelementptr %arguments[9] : (!llvm.ptr) -> !llvm.ptr, i64
  %word = llvm.load %p9 : !llvm.ptr -> i64
  %item = llvm.mlir.addressof @iteration : !llvm.ptr
  %s = llvm.call @parallel_for(%count, %item, %arguments) : (i64, !llvm.ptr, !llvm.ptr) -> i64
  %fine = arith.cmpi eq, %s, %zero : i64
  %on = arith.subi %minus, %word : i64
  %status = arith.select %fine, %on, %s : i64
  llvm.return %status : i64
}

// One iteration of a parallel loop, on a copy of the frame. Its own memory is in the slot before the variable's.
llvm.func internal @iteration(%arguments: !llvm.ptr, %number: i64) -> i64 {
  %out_of_memory = arith.constant 32768 : i64
  %null = llvm.mlir.zero : !llvm.ptr
  %eight = arith.constant 8 : i64
  %p1 = llvm.getelementptr %arguments[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %p2 = llvm.getelementptr %arguments[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %p3 = llvm.getelementptr %arguments[3] : (!llvm.ptr) -> !llvm.ptr, i64
  %p4 = llvm.getelementptr %arguments[4] : (!llvm.ptr) -> !llvm.ptr, i64
  %p5 = llvm.getelementptr %arguments[5] : (!llvm.ptr) -> !llvm.ptr, i64
  %p7 = llvm.getelementptr %arguments[7] : (!llvm.ptr) -> !llvm.ptr, i64
  %p8 = llvm.getelementptr %arguments[8] : (!llvm.ptr) -> !llvm.ptr, i64
  %p64 = llvm.getelementptr %arguments[64] : (!llvm.ptr) -> !llvm.ptr, i64
  %ticket = llvm.load %p64 : !llvm.ptr -> i64
  %parent = llvm.load %arguments : !llvm.ptr -> !llvm.ptr
  %words = llvm.load %p1 : !llvm.ptr -> !llvm.ptr
  %start = llvm.load %p2 : !llvm.ptr -> i64
  %variable = llvm.load %p3 : !llvm.ptr -> i64
  %first = llvm.load %p4 : !llvm.ptr -> i64
  %step = llvm.load %p5 : !llvm.ptr -> i64
  %slots = llvm.load %p7 : !llvm.ptr -> i64
  %own = llvm.load %p8 : !llvm.ptr -> i64
  %frame_bytes = arith.muli %slots, %eight : i64
  %size = arith.addi %frame_bytes, %own : i64
  %frame = llvm.call @acquire(%size) : (i64) -> !llvm.ptr
  %failed = llvm.icmp "eq" %frame, %null : !llvm.ptr
  %result = scf.if %failed -> (i64) {
    scf.yield %out_of_memory : i64
  } else {
    "llvm.intr.memcpy"(%frame, %parent, %frame_bytes) <{isVolatile = false}> : (!llvm.ptr, !llvm.ptr, i64) -> ()
    llvm.store %frame, %frame : !llvm.ptr, !llvm.ptr
    %memory = llvm.getelementptr %frame[%slots] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %slot = llvm.getelementptr %frame[%variable] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %offset = arith.muli %number, %step : i64
    %value = arith.addi %first, %offset : i64
    llvm.store %value, %slot : i64, !llvm.ptr
    %private = llvm.getelementptr %slot[-1] : (!llvm.ptr) -> !llvm.ptr, i64
    llvm.store %memory, %private : !llvm.ptr, !llvm.ptr
    %status = llvm.call @run(%frame, %words, %start, %ticket) : (!llvm.ptr, !llvm.ptr, i64, i64) -> i64
    llvm.call @release(%frame) : (!llvm.ptr) -> ()
    scf.yield %status : i64
  }
  llvm.return %result : i64
}

// (routine, parts, arguments of the routine, then per argument: value, step from part to part): the parts of one large
// tile operation, on the pool
llvm.func internal @nki_spread(%arguments: !llvm.ptr) -> i64 {
  %p1 = llvm.getelementptr %arguments[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %count = llvm.load %p1 : !llvm.ptr -> i64
  %item = llvm.mlir.addressof @part : !llvm.ptr
  %status = llvm.call @parallel_for(%count, %item, %arguments) : (i64, !llvm.ptr, !llvm.ptr) -> i64
  llvm.return %status : i64
}

llvm.func internal @part(%arguments: !llvm.ptr, %number: i64) -> i64 {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %two = arith.constant 2 : i64
  %room = arith.constant 32 : i64
  %own = llvm.alloca %room x i64 : (i64) -> !llvm.ptr
  %f = llvm.load %arguments : !llvm.ptr -> !llvm.ptr
  %p2 = llvm.getelementptr %arguments[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %n = llvm.load %p2 : !llvm.ptr -> i64
  %first = llvm.getelementptr %arguments[3] : (!llvm.ptr) -> !llvm.ptr, i64
  scf.for %k = %zero to %n step %one : i64 {
    %at = arith.muli %k, %two : i64
    %pv = llvm.getelementptr %first[%at] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %ps = llvm.getelementptr %pv[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %value = llvm.load %pv : !llvm.ptr -> i64
    %step = llvm.load %ps : !llvm.ptr -> i64
    %moved = arith.muli %step, %number : i64
    %here = arith.addi %value, %moved : i64
    %to = llvm.getelementptr %own[%k] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    llvm.store %here, %to : i64, !llvm.ptr
  }
  %result = llvm.call %f(%own) : !llvm.ptr, (!llvm.ptr) -> i64
  %p64 = llvm.getelementptr %arguments[64] : (!llvm.ptr) -> !llvm.ptr, i64
  %ticket = llvm.load %p64 : !llvm.ptr -> i64
  %status = llvm.call @unless_interrupted(%result, %ticket) : (i64, i64) -> i64
  llvm.return %status : i64
}
