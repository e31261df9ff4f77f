// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The handler of every kernel in XLA programs on the CPU: XLA_FFI_Error* handler(XLA_FFI_CallFrame*), null for success.
// The numbers are byte offsets in the structures of xla/ffi/api/c_api.h (64-bit). What has a dollar sign is filled in by
// xla_handler.py, which also makes the table and the descriptions that are read here.
//
//   table        $BUCKETS of {i64 number, ptr callee}; open addressing from the number's low bits; number 0 is free
//   callee       {ptr entry, i64 operands, i64 results, ptr buffers, i64 slots, ptr order, ptr clear, [64 x i8] key}
//   buffers      {i64 dtype, i64 elements} of each operand, then of each result
//   order        for each slot of the entry's data: which of operands ++ results it is
//   clear        for each result: how many bytes are set to zero before the call
//   state        {i64 handlers that are running, i64 whether the process is exiting}
//   help         ptr (ptr frame, i64 number, i32 status): the text of a failure (status != 0), or, with status 0, makes
//                the callee that the frame's attributes describe known and returns null, or says why it cannot

module {
  llvm.mlir.global internal constant @unknown("the custom call's kernel_id names no kernel that this process knows\00")
  llvm.mlir.global internal constant @exiting("a kernel was to start while the process exits\00")
  llvm.mlir.global internal constant @interrupted("Ctrl-C ended the kernel\00")
  llvm.mlir.global internal constant @buffers("the custom call's operands or results are not those of its kernel\00")

  llvm.func @usleep(i32) -> i32

  llvm.func internal @pointer_at(%base: !llvm.ptr, %offset: i64) -> !llvm.ptr {
    %place = llvm.getelementptr %base[%offset] : (!llvm.ptr, i64) -> !llvm.ptr, i8
    %value = llvm.load %place : !llvm.ptr -> !llvm.ptr
    llvm.return %value : !llvm.ptr
  }

  llvm.func internal @i64_at(%base: !llvm.ptr, %offset: i64) -> i64 {
    %place = llvm.getelementptr %base[%offset] : (!llvm.ptr, i64) -> !llvm.ptr, i8
    %value = llvm.load %place : !llvm.ptr -> i64
    llvm.return %value : i64
  }

  llvm.func internal @i32_at(%base: !llvm.ptr, %offset: i64) -> i32 {
    %place = llvm.getelementptr %base[%offset] : (!llvm.ptr, i64) -> !llvm.ptr, i8
    %value = llvm.load %place : !llvm.ptr -> i32
    llvm.return %value : i32
  }

  // array[index] of pointers
  llvm.func internal @element(%array: !llvm.ptr, %index: i64) -> !llvm.ptr {
    %place = llvm.getelementptr %array[%index] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.ptr
    %value = llvm.load %place : !llvm.ptr -> !llvm.ptr
    llvm.return %value : !llvm.ptr
  }

  // An error of XLA: its Error_Create copies the text.
  llvm.func internal @failure(%frame: !llvm.ptr, %text: !llvm.ptr, %code: i32) -> !llvm.ptr {
    %one = arith.constant 1 : i64
    %size = arith.constant 28 : i64         // XLA_FFI_Error_Create_Args_STRUCT_SIZE
    %null = llvm.mlir.zero : !llvm.ptr
    %arguments = llvm.alloca %one x !llvm.struct<(i64, ptr, ptr, i32)> : (i64) -> !llvm.ptr
    llvm.store %size, %arguments : i64, !llvm.ptr
    %extension = llvm.getelementptr %arguments[8] : (!llvm.ptr) -> !llvm.ptr, i8
    llvm.store %null, %extension : !llvm.ptr, !llvm.ptr
    %message = llvm.getelementptr %arguments[16] : (!llvm.ptr) -> !llvm.ptr, i8
    llvm.store %text, %message : !llvm.ptr, !llvm.ptr
    %errc = llvm.getelementptr %arguments[24] : (!llvm.ptr) -> !llvm.ptr, i8
    llvm.store %code, %errc : i32, !llvm.ptr
    %at_api = arith.constant 16 : i64       // frame.api
    %at_create = arith.constant 48 : i64    // api.XLA_FFI_Error_Create
    %api = llvm.call @pointer_at(%frame, %at_api) : (!llvm.ptr, i64) -> !llvm.ptr
    %create = llvm.call @pointer_at(%api, %at_create) : (!llvm.ptr, i64) -> !llvm.ptr
    %error = llvm.call %create(%arguments) : !llvm.ptr, (!llvm.ptr) -> !llvm.ptr
    llvm.return %error : !llvm.ptr
  }

  llvm.func internal @help(%frame: !llvm.ptr, %number: i64, %status: i32) -> !llvm.ptr {
    %address = arith.constant $HELP : i64
    %function = llvm.inttoptr %address : i64 to !llvm.ptr
    %text = llvm.call %function(%frame, %number, %status) : !llvm.ptr, (!llvm.ptr, i64, i32) -> !llvm.ptr
    llvm.return %text : !llvm.ptr
  }

  // The callee of a number, or null. That of number 0 is null, because free buckets are.
  llvm.func internal @find(%number: i64) -> !llvm.ptr {
    %zero = arith.constant 0 : i64
    %one = arith.constant 1 : i64
    %mask = arith.constant $BUCKET_MASK : i64
    %table_address = arith.constant $TABLE : i64
    %table = llvm.inttoptr %table_address : i64 to !llvm.ptr
    %first = arith.andi %number, %mask : i64
    llvm.br ^probe(%first : i64)
  ^probe(%k: i64):
    %bucket = llvm.getelementptr %table[%k] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.struct<(i64, ptr)>
    %held = llvm.load %bucket : !llvm.ptr -> i64
    %hit = arith.cmpi eq, %held, %number : i64
    llvm.cond_br %hit, ^found, ^miss
  ^found:
    %at_callee = arith.constant 8 : i64
    %callee = llvm.call @pointer_at(%bucket, %at_callee) : (!llvm.ptr, i64) -> !llvm.ptr
    llvm.return %callee : !llvm.ptr
  ^miss:
    %free = arith.cmpi eq, %held, %zero : i64
    %next = arith.addi %k, %one : i64
    %wrapped = arith.andi %next, %mask : i64
    llvm.cond_br %free, ^none, ^probe(%wrapped : i64)
  ^none:
    %null = llvm.mlir.zero : !llvm.ptr
    llvm.return %null : !llvm.ptr
  }

  // The value of an attribute by its place (they are sorted by name), or null where it is not of that type.
  llvm.func internal @attribute(%frame: !llvm.ptr, %place: i64, %type: i32) -> !llvm.ptr {
    %four = arith.constant 4 : i64
    %at_count = arith.constant 136 : i64    // frame.attrs.size, .types, .attrs
    %at_types = arith.constant 144 : i64
    %at_values = arith.constant 160 : i64
    %count = llvm.call @i64_at(%frame, %at_count) : (!llvm.ptr, i64) -> i64
    %present = arith.cmpi sgt, %count, %place : i64
    llvm.cond_br %present, ^typed, ^none
  ^typed:
    %types = llvm.call @pointer_at(%frame, %at_types) : (!llvm.ptr, i64) -> !llvm.ptr
    %offset = arith.muli %place, %four : i64
    %found = llvm.call @i32_at(%types, %offset) : (!llvm.ptr, i64) -> i32
    %same = arith.cmpi eq, %found, %type : i32
    llvm.cond_br %same, ^value, ^none
  ^value:
    %values = llvm.call @pointer_at(%frame, %at_values) : (!llvm.ptr, i64) -> !llvm.ptr
    %value = llvm.call @element(%values, %place) : (!llvm.ptr, i64) -> !llvm.ptr
    llvm.return %value : !llvm.ptr
  ^none:
    %null = llvm.mlir.zero : !llvm.ptr
    llvm.return %null : !llvm.ptr
  }

  // kernel_id, the first attribute; 0 where it is not an i64.
  llvm.func internal @number_of(%frame: !llvm.ptr) -> i64 {
    %zero = arith.constant 0 : i64
    %at_data = arith.constant 8 : i64
    %null = llvm.mlir.zero : !llvm.ptr
    %scalar = arith.constant 3 : i32        // XLA_FFI_AttrType_SCALAR
    %s64 = arith.constant 5 : i32           // XLA_FFI_DataType_S64
    %value = llvm.call @attribute(%frame, %zero, %scalar) : (!llvm.ptr, i64, i32) -> !llvm.ptr
    %absent = llvm.icmp "eq" %value, %null : !llvm.ptr
    llvm.cond_br %absent, ^none, ^value
  ^value:
    %dtype = llvm.load %value : !llvm.ptr -> i32
    %is_s64 = arith.cmpi eq, %dtype, %s64 : i32
    llvm.cond_br %is_s64, ^read, ^none
  ^read:
    %data = llvm.call @pointer_at(%value, %at_data) : (!llvm.ptr, i64) -> !llvm.ptr
    %number = llvm.load %data : !llvm.ptr -> i64
    llvm.return %number : i64
  ^none:
    llvm.return %zero : i64
  }

  // Whether kernel_key, the second attribute, is the key of the callee.
  llvm.func internal @has_key(%frame: !llvm.ptr, %callee: !llvm.ptr) -> i1 {
    %one = arith.constant 1 : i64
    %at_length = arith.constant 8 : i64
    %null = llvm.mlir.zero : !llvm.ptr
    %string = arith.constant 4 : i32        // XLA_FFI_AttrType_STRING, whose value is {ptr, i64 length}
    %span = llvm.call @attribute(%frame, %one, %string) : (!llvm.ptr, i64, i32) -> !llvm.ptr
    %absent = llvm.icmp "eq" %span, %null : !llvm.ptr
    llvm.cond_br %absent, ^no, ^sized
  ^sized:
    %length = llvm.call @i64_at(%span, %at_length) : (!llvm.ptr, i64) -> i64
    %expected = arith.constant 64 : i64
    %is_key = arith.cmpi eq, %length, %expected : i64
    llvm.cond_br %is_key, ^compare, ^no
  ^compare:
    %text = llvm.load %span : !llvm.ptr -> !llvm.ptr
    %key = llvm.getelementptr %callee[56] : (!llvm.ptr) -> !llvm.ptr, i8
    %words = llvm.load %text {alignment = 1 : i64} : !llvm.ptr -> vector<8xi64>
    %own = llvm.load %key {alignment = 1 : i64} : !llvm.ptr -> vector<8xi64>
    %same = arith.cmpi eq, %words, %own : vector<8xi64>
    %all = "llvm.intr.vector.reduce.and"(%same) : (vector<8xi1>) -> i1
    llvm.return %all : i1
  ^no:
    %false = arith.constant false
    llvm.return %false : i1
  }

  // Whether an XLA_FFI_Buffer has the dtype and the number of elements that a callee expects.
  llvm.func internal @fits(%buffer: !llvm.ptr, %expected: !llvm.ptr) -> i1 {
    %zero = arith.constant 0 : i64
    %one = arith.constant 1 : i64
    %at_dtype = arith.constant 16 : i64
    %at_rank = arith.constant 32 : i64
    %at_dims = arith.constant 40 : i64
    %at_elements = arith.constant 8 : i64
    %dtype = llvm.call @i32_at(%buffer, %at_dtype) : (!llvm.ptr, i64) -> i32
    %wide = arith.extsi %dtype : i32 to i64
    %rank = llvm.call @i64_at(%buffer, %at_rank) : (!llvm.ptr, i64) -> i64
    %dims = llvm.call @pointer_at(%buffer, %at_dims) : (!llvm.ptr, i64) -> !llvm.ptr
    %elements = scf.for %k = %zero to %rank step %one iter_args(%product = %one) -> i64 : i64 {
      %place = llvm.getelementptr %dims[%k] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %extent = llvm.load %place : !llvm.ptr -> i64
      %larger = arith.muli %product, %extent : i64
      scf.yield %larger : i64
    }
    %expected_dtype = llvm.load %expected : !llvm.ptr -> i64
    %expected_elements = llvm.call @i64_at(%expected, %at_elements) : (!llvm.ptr, i64) -> i64
    %same_dtype = arith.cmpi eq, %wide, %expected_dtype : i64
    %same_size = arith.cmpi eq, %elements, %expected_elements : i64
    %same = arith.andi %same_dtype, %same_size : i1
    llvm.return %same : i1
  }

  // Data addresses of buffers, from position first on; false where one is not what the callee expects.
  llvm.func internal @collect(%list: !llvm.ptr, %count: i64, %first: i64, %expected: !llvm.ptr, %into: !llvm.ptr) -> i1 {
    %zero = arith.constant 0 : i64
    %one = arith.constant 1 : i64
    %yes = arith.constant true
    %at_data = arith.constant 24 : i64
    %fit = scf.for %k = %zero to %count step %one iter_args(%so_far = %yes) -> i1 : i64 {
      %buffer = llvm.call @element(%list, %k) : (!llvm.ptr, i64) -> !llvm.ptr
      %position = arith.addi %first, %k : i64
      %description = llvm.getelementptr %expected[%position] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.struct<(i64, i64)>
      %fits = llvm.call @fits(%buffer, %description) : (!llvm.ptr, !llvm.ptr) -> i1
      %data = llvm.call @pointer_at(%buffer, %at_data) : (!llvm.ptr, i64) -> !llvm.ptr
      %place = llvm.getelementptr %into[%position] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.ptr
      llvm.store %data, %place : !llvm.ptr, !llvm.ptr
      %still = arith.andi %so_far, %fits : i1
      scf.yield %still : i1
    }
    llvm.return %fit : i1
  }

  llvm.func internal @execute(%frame: !llvm.ptr) -> !llvm.ptr {
    %zero = arith.constant 0 : i64
    %one = arith.constant 1 : i64
    %null = llvm.mlir.zero : !llvm.ptr
    %invalid = arith.constant 3 : i32       // INVALID_ARGUMENT
    %number = llvm.call @number_of(%frame) : (!llvm.ptr) -> i64
    %callee = llvm.call @find(%number) : (i64) -> !llvm.ptr
    %absent = llvm.icmp "eq" %callee, %null : !llvm.ptr
    llvm.cond_br %absent, ^unknown, ^count
  ^unknown:
    %unknown = llvm.mlir.addressof @unknown : !llvm.ptr
    %not_found = arith.constant 5 : i32     // NOT_FOUND
    %error1 = llvm.call @failure(%frame, %unknown, %not_found) : (!llvm.ptr, !llvm.ptr, i32) -> !llvm.ptr
    llvm.return %error1 : !llvm.ptr
  ^count:
    %at_operand_count = arith.constant 56 : i64         // frame.args.size, .args
    %at_operands = arith.constant 72 : i64
    %at_result_count = arith.constant 96 : i64          // frame.rets.size, .rets
    %at_results = arith.constant 112 : i64
    %c8 = arith.constant 8 : i64
    %c16 = arith.constant 16 : i64
    %c24 = arith.constant 24 : i64
    %c32 = arith.constant 32 : i64
    %c40 = arith.constant 40 : i64
    %c48 = arith.constant 48 : i64
    %operands = llvm.call @i64_at(%frame, %at_operand_count) : (!llvm.ptr, i64) -> i64
    %results = llvm.call @i64_at(%frame, %at_result_count) : (!llvm.ptr, i64) -> i64
    %own_operands = llvm.call @i64_at(%callee, %c8) : (!llvm.ptr, i64) -> i64
    %own_results = llvm.call @i64_at(%callee, %c16) : (!llvm.ptr, i64) -> i64
    %same_operands = arith.cmpi eq, %operands, %own_operands : i64
    %same_results = arith.cmpi eq, %results, %own_results : i64
    %same_counts = arith.andi %same_operands, %same_results : i1
    llvm.cond_br %same_counts, ^gather, ^mismatch
  ^gather:
    %total = arith.addi %operands, %results : i64
    %addresses = llvm.alloca %total x !llvm.ptr : (i64) -> !llvm.ptr
    %buffers = llvm.call @pointer_at(%callee, %c24) : (!llvm.ptr, i64) -> !llvm.ptr
    %operand_list = llvm.call @pointer_at(%frame, %at_operands) : (!llvm.ptr, i64) -> !llvm.ptr
    %result_list = llvm.call @pointer_at(%frame, %at_results) : (!llvm.ptr, i64) -> !llvm.ptr
    %operands_fit = llvm.call @collect(%operand_list, %operands, %zero, %buffers, %addresses)
        : (!llvm.ptr, i64, i64, !llvm.ptr, !llvm.ptr) -> i1
    %results_fit = llvm.call @collect(%result_list, %results, %operands, %buffers, %addresses)
        : (!llvm.ptr, i64, i64, !llvm.ptr, !llvm.ptr) -> i1
    %fit = arith.andi %operands_fit, %results_fit : i1
    llvm.cond_br %fit, ^prepare, ^mismatch
  ^mismatch:
    %mismatch = llvm.mlir.addressof @buffers : !llvm.ptr
    %error2 = llvm.call @failure(%frame, %mismatch, %invalid) : (!llvm.ptr, !llvm.ptr, i32) -> !llvm.ptr
    llvm.return %error2 : !llvm.ptr
  ^prepare:
    %clear = llvm.call @pointer_at(%callee, %c48) : (!llvm.ptr, i64) -> !llvm.ptr
    %zero_byte = arith.constant 0 : i8
    scf.for %k = %zero to %results step %one : i64 {
      %place = llvm.getelementptr %clear[%k] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %bytes = llvm.load %place : !llvm.ptr -> i64
      %position = arith.addi %operands, %k : i64
      %data = llvm.call @element(%addresses, %position) : (!llvm.ptr, i64) -> !llvm.ptr
      "llvm.intr.memset"(%data, %zero_byte, %bytes) <{isVolatile = false}> : (!llvm.ptr, i8, i64) -> ()
    }
    %slots = llvm.call @i64_at(%callee, %c32) : (!llvm.ptr, i64) -> i64
    %order = llvm.call @pointer_at(%callee, %c40) : (!llvm.ptr, i64) -> !llvm.ptr
    %arguments = llvm.alloca %slots x !llvm.ptr : (i64) -> !llvm.ptr
    scf.for %k = %zero to %slots step %one : i64 {
      %place = llvm.getelementptr %order[%k] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %position = llvm.load %place : !llvm.ptr -> i64
      %data = llvm.call @element(%addresses, %position) : (!llvm.ptr, i64) -> !llvm.ptr
      %slot = llvm.getelementptr %arguments[%k] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.ptr
      llvm.store %data, %slot : !llvm.ptr, !llvm.ptr
    }
    %entry = llvm.load %callee : !llvm.ptr -> !llvm.ptr
    %status = llvm.call %entry(%arguments) : !llvm.ptr, (!llvm.ptr) -> i32
    %fine = arith.constant 0 : i32
    %ok = arith.cmpi eq, %status, %fine : i32
    llvm.cond_br %ok, ^done, ^bad
  ^bad:                                                 // Python cannot be asked here: it would handle the signal
    %interruption = arith.constant $INTERRUPTED : i32
    %stopped = arith.cmpi eq, %status, %interruption : i32
    llvm.cond_br %stopped, ^stopped, ^failed
  ^stopped:
    %canceled = arith.constant 1 : i32     // CANCELLED
    // A thread of Python that waits for the result looks for signals several times a second, and raises
    // KeyboardInterrupt. With this error at once, it would raise the error, and KeyboardInterrupt while it shows it.
    %moment = arith.constant $MICROSECONDS : i32
    %slept = llvm.call @usleep(%moment) : (i32) -> i32
    %interrupted = llvm.mlir.addressof @interrupted : !llvm.ptr
    %error4 = llvm.call @failure(%frame, %interrupted, %canceled) : (!llvm.ptr, !llvm.ptr, i32) -> !llvm.ptr
    llvm.return %error4 : !llvm.ptr
  ^failed:
    %internal = arith.constant 13 : i32     // INTERNAL
    %text = llvm.call @help(%frame, %number, %status) : (!llvm.ptr, i64, i32) -> !llvm.ptr
    %error3 = llvm.call @failure(%frame, %text, %internal) : (!llvm.ptr, !llvm.ptr, i32) -> !llvm.ptr
    llvm.return %error3 : !llvm.ptr
  ^done:
    llvm.return %null : !llvm.ptr
  }

  // Once per executable: the kernel of its custom call is known, or becomes known from what the call carries.
  llvm.func internal @instantiate(%frame: !llvm.ptr) -> !llvm.ptr {
    %null = llvm.mlir.zero : !llvm.ptr
    %number = llvm.call @number_of(%frame) : (!llvm.ptr) -> i64
    %callee = llvm.call @find(%number) : (i64) -> !llvm.ptr
    %absent = llvm.icmp "eq" %callee, %null : !llvm.ptr
    llvm.cond_br %absent, ^resolve, ^verify
  ^verify:
    %same = llvm.call @has_key(%frame, %callee) : (!llvm.ptr, !llvm.ptr) -> i1
    llvm.cond_br %same, ^known, ^resolve
  ^resolve:
    %no_status = arith.constant 0 : i32
    %text = llvm.call @help(%frame, %number, %no_status) : (!llvm.ptr, i64, i32) -> !llvm.ptr
    %resolved = llvm.icmp "eq" %text, %null : !llvm.ptr
    llvm.cond_br %resolved, ^known, ^failed
  ^failed:
    %precondition = arith.constant 9 : i32  // FAILED_PRECONDITION
    %error = llvm.call @failure(%frame, %text, %precondition) : (!llvm.ptr, !llvm.ptr, i32) -> !llvm.ptr
    llvm.return %error : !llvm.ptr
  ^known:
    llvm.return %null : !llvm.ptr
  }

  llvm.func @handler(%frame: !llvm.ptr) -> !llvm.ptr {
    %null = llvm.mlir.zero : !llvm.ptr
    %at_extension = arith.constant 8 : i64  // frame.extension_start
    %at_type = arith.constant 8 : i64
    %one = arith.constant 1 : i32
    %extension = llvm.call @pointer_at(%frame, %at_extension) : (!llvm.ptr, i64) -> !llvm.ptr
    %plain = llvm.icmp "eq" %extension, %null : !llvm.ptr
    llvm.cond_br %plain, ^work, ^extended
  ^extended:
    %type = llvm.call @i32_at(%extension, %at_type) : (!llvm.ptr, i64) -> i32
    %query = arith.cmpi eq, %type, %one : i32           // XLA_FFI_Extension_Metadata
    llvm.cond_br %query, ^metadata, ^work
  ^metadata:                                            // major, minor, traits: nothing else in this frame is set
    %at_metadata = arith.constant 24 : i64
    %fields = llvm.call @pointer_at(%extension, %at_metadata) : (!llvm.ptr, i64) -> !llvm.ptr
    %zero = arith.constant 0 : i32
    %minor_version = arith.constant $MINOR : i32
    %major = llvm.getelementptr %fields[24] : (!llvm.ptr) -> !llvm.ptr, i8
    llvm.store %zero, %major : i32, !llvm.ptr
    %minor = llvm.getelementptr %fields[28] : (!llvm.ptr) -> !llvm.ptr, i8
    llvm.store %minor_version, %minor : i32, !llvm.ptr
    %traits = llvm.getelementptr %fields[32] : (!llvm.ptr) -> !llvm.ptr, i8
    llvm.store %zero, %traits : i32, !llvm.ptr
    llvm.return %null : !llvm.ptr
  ^work:
    %done = llvm.call @guarded(%frame) : (!llvm.ptr) -> !llvm.ptr
    llvm.return %done : !llvm.ptr
  }

  // Entries and help may be Python, which cannot be called once the interpreter has begun to exit: counted first, so
  // that whoever sets the mark and then waits for the count to be 0 knows that no more calls come.
  llvm.func internal @guarded(%frame: !llvm.ptr) -> !llvm.ptr {
    %up = arith.constant 1 : i64
    %down = arith.constant -1 : i64
    %open = arith.constant 0 : i64
    %state_address = arith.constant $STATE : i64
    %running = llvm.inttoptr %state_address : i64 to !llvm.ptr
    %exits = llvm.getelementptr %running[8] : (!llvm.ptr) -> !llvm.ptr, i8
    %before = llvm.atomicrmw add %running, %up seq_cst : !llvm.ptr, i64
    %mark = llvm.load %exits atomic seq_cst {alignment = 8 : i64} : !llvm.ptr -> i64
    %may_run = arith.cmpi eq, %mark, %open : i64
    llvm.cond_br %may_run, ^run, ^refuse
  ^run:
    %result = llvm.call @staged(%frame) : (!llvm.ptr) -> !llvm.ptr
    llvm.br ^leave(%result : !llvm.ptr)
  ^refuse:
    %canceled = arith.constant 1 : i32                 // CANCELLED
    %text = llvm.mlir.addressof @exiting : !llvm.ptr
    %error = llvm.call @failure(%frame, %text, %canceled) : (!llvm.ptr, !llvm.ptr, i32) -> !llvm.ptr
    llvm.br ^leave(%error : !llvm.ptr)
  ^leave(%value: !llvm.ptr):
    %after = llvm.atomicrmw add %running, %down seq_cst : !llvm.ptr, i64
    llvm.return %value : !llvm.ptr
  }

  llvm.func internal @staged(%frame: !llvm.ptr) -> !llvm.ptr {
    %at_stage = arith.constant 32 : i64
    %stage = llvm.call @i32_at(%frame, %at_stage) : (!llvm.ptr, i64) -> i32
    %first_stage = arith.constant 0 : i32               // XLA_FFI_ExecutionStage_INSTANTIATE
    %instantiates = arith.cmpi eq, %stage, %first_stage : i32
    llvm.cond_br %instantiates, ^instantiate, ^execute
  ^instantiate:
    %prepared = llvm.call @instantiate(%frame) : (!llvm.ptr) -> !llvm.ptr
    llvm.return %prepared : !llvm.ptr
  ^execute:
    %done = llvm.call @execute(%frame) : (!llvm.ptr) -> !llvm.ptr
    llvm.return %done : !llvm.ptr
  }

  // The execution engine looks up packed wrappers only, so the address is asked for.
  llvm.func @handler_address() -> !llvm.ptr {
    %address = llvm.mlir.addressof @handler : !llvm.ptr
    llvm.return %address : !llvm.ptr
  }
}
