// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ctrl-C: what ends launches that may take long. Such a launch has a ticket, a number that grows from launch to launch,
// and looks between instructions whether it is to end. Two things end it:
//
//   A signal. @nki_signaled counts Ctrl-C, notes the next ticket, and calls Python's handler. The first launch that sees
//   the count starts a thread that asks Python whether such a signal ends work. If so, all launches with smaller tickets
//   end, on all threads. A framework may wait for a launch without releasing Python's lock. Then there is no answer, and
//   the last one counts.
//   A handler of Python that raises. Python runs handlers on its main thread, between its own instructions. A launch of
//   that thread (@nki_launch_watched) lets it do so: every now and then it calls a function of Python, whose status other
//   than 0 ends this launch.
//
// Other launches have the largest ticket. The machine calls the functions of this file by address; a process compiles
// them before its first kernel that may take long.
llvm.mlir.global internal @tickets(1 : i64) : i64       // the next ticket
llvm.mlir.global internal @ended(0 : i64) : i64         // launches with smaller tickets end
llvm.mlir.global internal @signals(0 : i64) : i64       // how often Ctrl-C has come
llvm.mlir.global internal @signaled(0 : i64) : i64     // the next ticket at the last one
llvm.mlir.global internal @answered(0 : i64) : i64      // those that Python was asked about
llvm.mlir.global internal @asked(0 : i64) : i64         // when it was, in ns, or 0 after its answer
llvm.mlir.global internal @last_answer(0 : i64) : i64   // whether a signal ends work
llvm.mlir.global internal @main(0 : i64) : i64          // Python's main thread
llvm.mlir.global internal @polled(0 : i64) : i64        // the ticket of its launch
llvm.mlir.global internal @looked(0 : i64) : i64        // when it called Python last, in ns
llvm.mlir.global internal @raised(0 : i64) : i64        // the ticket of the launch that Python has ended
llvm.mlir.global internal @poll() : !llvm.ptr { %z = llvm.mlir.zero : !llvm.ptr  llvm.return %z : !llvm.ptr }
llvm.mlir.global internal @ask() : !llvm.ptr { %z = llvm.mlir.zero : !llvm.ptr  llvm.return %z : !llvm.ptr }
llvm.mlir.global internal @handler_of() : !llvm.ptr { %z = llvm.mlir.zero : !llvm.ptr  llvm.return %z : !llvm.ptr }
llvm.mlir.global internal @handle_by() : !llvm.ptr { %z = llvm.mlir.zero : !llvm.ptr  llvm.return %z : !llvm.ptr }
llvm.mlir.global internal @python() : !llvm.ptr { %z = llvm.mlir.zero : !llvm.ptr  llvm.return %z : !llvm.ptr }

llvm.func @pthread_self() -> i64
llvm.func @pthread_create(!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
llvm.func @pthread_detach(i64) -> i32
llvm.func @clock_gettime(i32, !llvm.ptr) -> i32

// Python's functions: the one that handles signals, and the one that says whether a signal ends work; and its main thread.
llvm.func internal @nki_use_python(%poll_function: !llvm.ptr, %ask_function: !llvm.ptr, %thread: i64) {
  %poll = llvm.mlir.addressof @poll : !llvm.ptr
  %ask = llvm.mlir.addressof @ask : !llvm.ptr
  %main = llvm.mlir.addressof @main : !llvm.ptr
  llvm.store %poll_function, %poll : !llvm.ptr, !llvm.ptr
  llvm.store %ask_function, %ask : !llvm.ptr, !llvm.ptr
  llvm.store %thread, %main : i64, !llvm.ptr
  llvm.return
}

// Python exits: its last answer counts.
llvm.func internal @nki_ask_nobody() {
  %null = llvm.mlir.zero : !llvm.ptr
  %ask = llvm.mlir.addressof @ask : !llvm.ptr
  llvm.store %null, %ask : !llvm.ptr, !llvm.ptr
  llvm.return
}

// Whether a signal ends work, as long as Python gives no other answer.
llvm.func internal @nki_use_answer(%answer: i64) {
  %last = llvm.mlir.addressof @last_answer : !llvm.ptr
  llvm.store %answer, %last atomic monotonic {alignment = 8 : i64} : i64, !llvm.ptr
  llvm.return
}

// PyOS_getsig, PyOS_setsig, and Python's handler of signals, which long launches replace.
llvm.func internal @nki_use_signals(%getsig: !llvm.ptr, %setsig: !llvm.ptr, %handler: !llvm.ptr) {
  %handler_of = llvm.mlir.addressof @handler_of : !llvm.ptr
  %handle_by = llvm.mlir.addressof @handle_by : !llvm.ptr
  %python = llvm.mlir.addressof @python : !llvm.ptr
  llvm.store %getsig, %handler_of : !llvm.ptr, !llvm.ptr
  llvm.store %setsig, %handle_by : !llvm.ptr, !llvm.ptr
  llvm.store %handler, %python : !llvm.ptr, !llvm.ptr
  llvm.return
}

// The handler of Ctrl-C.
llvm.func internal @nki_signaled(%signal: i32) {
  %one = arith.constant 1 : i64
  %ptickets = llvm.mlir.addressof @tickets : !llvm.ptr
  %psignals = llvm.mlir.addressof @signals : !llvm.ptr
  %psignaled = llvm.mlir.addressof @signaled : !llvm.ptr
  %ppython = llvm.mlir.addressof @python : !llvm.ptr
  %next = llvm.load %ptickets atomic seq_cst {alignment = 8 : i64} : !llvm.ptr -> i64
  llvm.store %next, %psignaled atomic seq_cst {alignment = 8 : i64} : i64, !llvm.ptr
  %before = llvm.atomicrmw add %psignals, %one seq_cst : !llvm.ptr, i64
  %python = llvm.load %ppython : !llvm.ptr -> !llvm.ptr
  llvm.call %python(%signal) : !llvm.ptr, (i32) -> ()
  llvm.return
}

// Replace Python's handler. Others stay, and so does the decision of a program to ignore the signal.
llvm.func internal @watch_signals() {
  %interrupt = arith.constant 2 : i32                   // SIGINT
  %null = llvm.mlir.zero : !llvm.ptr
  %ppython = llvm.mlir.addressof @python : !llvm.ptr
  %python = llvm.load %ppython : !llvm.ptr -> !llvm.ptr
  %known = llvm.icmp "ne" %python, %null : !llvm.ptr
  scf.if %known {
    %phandler_of = llvm.mlir.addressof @handler_of : !llvm.ptr
    %handler_of = llvm.load %phandler_of : !llvm.ptr -> !llvm.ptr
    %handler = llvm.call %handler_of(%interrupt) : !llvm.ptr, (i32) -> !llvm.ptr
    %plain = llvm.icmp "eq" %handler, %python : !llvm.ptr
    scf.if %plain {
      %phandle_by = llvm.mlir.addressof @handle_by : !llvm.ptr
      %handle_by = llvm.load %phandle_by : !llvm.ptr -> !llvm.ptr
      %signaled = llvm.mlir.addressof @nki_signaled : !llvm.ptr
      %before = llvm.call %handle_by(%interrupt, %signaled) : !llvm.ptr, (i32, !llvm.ptr) -> !llvm.ptr
    }
  }
  llvm.return
}

// Nanoseconds of CLOCK_MONOTONIC.
llvm.func internal @now() -> i64 {
  %two = arith.constant 2 : i64
  %monotonic = arith.constant 1 : i32
  %second = arith.constant 1000000000 : i64
  %time = llvm.alloca %two x i64 : (i64) -> !llvm.ptr
  %r = llvm.call @clock_gettime(%monotonic, %time) : (i32, !llvm.ptr) -> i32
  %rest = llvm.getelementptr %time[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %seconds = llvm.load %time : !llvm.ptr -> i64
  %nanoseconds = llvm.load %rest : !llvm.ptr -> i64
  %whole = arith.muli %seconds, %second : i64
  %sum = arith.addi %whole, %nanoseconds : i64
  llvm.return %sum : i64
}

// 0, or the status of an interruption of the launch with the ticket.
llvm.func internal @nki_interruption(%ticket: i64) -> i64 {
  %zero = arith.constant 0 : i64
  %interrupted = arith.constant 65536 : i64
  %patience = arith.constant 100000000 : i64
  %psignals = llvm.mlir.addressof @signals : !llvm.ptr
  %panswered = llvm.mlir.addressof @answered : !llvm.ptr
  %pasked = llvm.mlir.addressof @asked : !llvm.ptr
  %ppolled = llvm.mlir.addressof @polled : !llvm.ptr
  %pended = llvm.mlir.addressof @ended : !llvm.ptr
  %praised = llvm.mlir.addressof @raised : !llvm.ptr
  %signals = llvm.load %psignals atomic monotonic {alignment = 8 : i64} : !llvm.ptr -> i64
  %answered = llvm.load %panswered atomic monotonic {alignment = 8 : i64} : !llvm.ptr -> i64
  %new = arith.cmpi ne, %signals, %answered : i64
  scf.if %new {
    %x = llvm.cmpxchg %panswered, %answered, %signals acq_rel monotonic : !llvm.ptr, i64
    %mine = llvm.extractvalue %x[1] : !llvm.struct<(i64, i1)>
    scf.if %mine {
      llvm.call @ask_python() : () -> ()
    }
  }
  %asked = llvm.load %pasked atomic monotonic {alignment = 8 : i64} : !llvm.ptr -> i64
  %waits = arith.cmpi ne, %asked, %zero : i64
  scf.if %waits {
    %now = llvm.call @now() : () -> i64
    %since = arith.subi %now, %asked : i64
    %long = arith.cmpi sgt, %since, %patience : i64
    scf.if %long {
      llvm.call @follow_answer() : () -> ()
    }
  }
  %polled = llvm.load %ppolled atomic monotonic {alignment = 8 : i64} : !llvm.ptr -> i64
  %polls = arith.cmpi eq, %polled, %ticket : i64
  scf.if %polls {
    llvm.call @let_python_run(%ticket) : (i64) -> ()
  }
  %ended = llvm.load %pended atomic monotonic {alignment = 8 : i64} : !llvm.ptr -> i64
  %raised = llvm.load %praised atomic monotonic {alignment = 8 : i64} : !llvm.ptr -> i64
  %old = arith.cmpi slt, %ticket, %ended : i64
  %chosen = arith.cmpi eq, %ticket, %raised : i64
  %either = arith.ori %old, %chosen : i1
  %status = arith.select %either, %interrupted, %zero : i64
  llvm.return %status : i64
}

// Ask Python whether the signal ends work.
llvm.func internal @ask_python() {
  %one = arith.constant 1 : i64
  %fine = arith.constant 0 : i32
  %null = llvm.mlir.zero : !llvm.ptr
  %pasked = llvm.mlir.addressof @asked : !llvm.ptr
  %function = llvm.mlir.addressof @answer : !llvm.ptr
  %thread = llvm.alloca %one x i64 : (i64) -> !llvm.ptr
  %now = llvm.call @now() : () -> i64
  llvm.store %now, %pasked atomic seq_cst {alignment = 8 : i64} : i64, !llvm.ptr
  %r = llvm.call @pthread_create(%thread, %null, %function, %null)
    : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
  %started = arith.cmpi eq, %r, %fine : i32
  scf.if %started {
    %number = llvm.load %thread : !llvm.ptr -> i64
    %d = llvm.call @pthread_detach(%number) : (i64) -> i32
  }
  llvm.return
}

llvm.func internal @answer(%unused: !llvm.ptr) -> !llvm.ptr {
  %null = llvm.mlir.zero : !llvm.ptr
  %pask = llvm.mlir.addressof @ask : !llvm.ptr
  %plast = llvm.mlir.addressof @last_answer : !llvm.ptr
  %ask = llvm.load %pask : !llvm.ptr -> !llvm.ptr
  %python = llvm.icmp "ne" %ask, %null : !llvm.ptr
  scf.if %python {
    %answer = llvm.call %ask() : !llvm.ptr, () -> i64
    llvm.store %answer, %plast atomic monotonic {alignment = 8 : i64} : i64, !llvm.ptr
  }
  llvm.call @follow_answer() : () -> ()
  llvm.return %null : !llvm.ptr
}

// End all launches that had begun at the signal, if signals end work.
llvm.func internal @follow_answer() {
  %zero = arith.constant 0 : i64
  %psignaled = llvm.mlir.addressof @signaled : !llvm.ptr
  %pended = llvm.mlir.addressof @ended : !llvm.ptr
  %pasked = llvm.mlir.addressof @asked : !llvm.ptr
  %plast = llvm.mlir.addressof @last_answer : !llvm.ptr
  %tickets = llvm.load %psignaled atomic seq_cst {alignment = 8 : i64} : !llvm.ptr -> i64
  %answer = llvm.load %plast atomic monotonic {alignment = 8 : i64} : !llvm.ptr -> i64
  %ends = arith.cmpi ne, %answer, %zero : i64
  scf.if %ends {
    %before = llvm.atomicrmw max %pended, %tickets seq_cst : !llvm.ptr, i64
  }
  llvm.store %zero, %pasked atomic seq_cst {alignment = 8 : i64} : i64, !llvm.ptr
  llvm.return
}

llvm.func internal @is_main() -> i1 {
  %pmain = llvm.mlir.addressof @main : !llvm.ptr
  %self = llvm.call @pthread_self() : () -> i64
  %main = llvm.load %pmain : !llvm.ptr -> i64
  %same = arith.cmpi eq, %self, %main : i64
  llvm.return %same : i1
}

// Let Python handle signals, on its main thread, if it has not done so for a while.
llvm.func internal @let_python_run(%ticket: i64) {
  %zero = arith.constant 0 : i64
  %interval = arith.constant 50000000 : i64
  %plooked = llvm.mlir.addressof @looked : !llvm.ptr
  %praised = llvm.mlir.addressof @raised : !llvm.ptr
  %ppoll = llvm.mlir.addressof @poll : !llvm.ptr
  %now = llvm.call @now() : () -> i64
  %looked = llvm.load %plooked atomic monotonic {alignment = 8 : i64} : !llvm.ptr -> i64
  %since = arith.subi %now, %looked : i64
  %due = arith.cmpi sgt, %since, %interval : i64
  scf.if %due {
    %on_main = llvm.call @is_main() : () -> i1
    scf.if %on_main {
      llvm.store %now, %plooked atomic monotonic {alignment = 8 : i64} : i64, !llvm.ptr
      %poll = llvm.load %ppoll : !llvm.ptr -> !llvm.ptr
      %s = llvm.call %poll() : !llvm.ptr, () -> i64
      %bad = arith.cmpi ne, %s, %zero : i64
      scf.if %bad {
        llvm.store %ticket, %praised atomic monotonic {alignment = 8 : i64} : i64, !llvm.ptr
      }
    }
  }
  llvm.return
}

// End all launches that may take long.
llvm.func internal @nki_end_launches() {
  %ptickets = llvm.mlir.addressof @tickets : !llvm.ptr
  %pended = llvm.mlir.addressof @ended : !llvm.ptr
  %tickets = llvm.load %ptickets atomic seq_cst {alignment = 8 : i64} : !llvm.ptr -> i64
  %before = llvm.atomicrmw max %pended, %tickets seq_cst : !llvm.ptr, i64
  llvm.return
}

// The ticket of a launch that begins.
llvm.func internal @nki_next_ticket() -> i64 {
  %one = arith.constant 1 : i64
  %ptickets = llvm.mlir.addressof @tickets : !llvm.ptr
  llvm.call @watch_signals() : () -> ()
  %ticket = llvm.atomicrmw add %ptickets, %one seq_cst : !llvm.ptr, i64
  llvm.return %ticket : i64
}

// From now on, the launch with the ticket lets Python run. The result is the ticket of the one that did before.
llvm.func internal @nki_poll_for(%ticket: i64) -> i64 {
  %ppolled = llvm.mlir.addressof @polled : !llvm.ptr
  %plooked = llvm.mlir.addressof @looked : !llvm.ptr
  %outer = llvm.load %ppolled atomic monotonic {alignment = 8 : i64} : !llvm.ptr -> i64
  %now = llvm.call @now() : () -> i64
  llvm.store %now, %plooked atomic monotonic {alignment = 8 : i64} : i64, !llvm.ptr
  llvm.store %ticket, %ppolled atomic monotonic {alignment = 8 : i64} : i64, !llvm.ptr
  llvm.return %outer : i64
}
