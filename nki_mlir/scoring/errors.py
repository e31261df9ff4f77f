# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors of candidates and references, in addition to the compiler's."""

from nki_mlir.diagnostics import NkiMlirError


class BadCandidate(NkiMlirError):
    code = "NKI-SCORE-CANDIDATE"
    message = "{what}"
    fix = "{fix}"


class ForbiddenAct(NkiMlirError):
    code = "NKI-SCORE-FORBIDDEN"
    message = "the candidate {act}"
    why = "a candidate consists only of a kernel: it may not read or change the code that judges it"
    fix = "leave out code that is not part of the kernel, or keep it under if __name__ == '__main__'"


class OlderForm(NkiMlirError):
    code = "NKI-SCORE-RELEASE"
    message = "the newest release does not accept this: {what}"
    why = "the reference requires the newest release (STRICT)"
    fix = "write it as the newest release has it; nki-migrate rewrites most forms"


class LimitReached(NkiMlirError):
    code = "NKI-SCORE-LIMIT"
    message = "the candidate {what}"
    fix = "{fix}"


class ProcessEnded(NkiMlirError):
    code = "NKI-SCORE-CRASH"
    message = "the process of {what} ended with {status} before it had a result"
    fix = "run the candidate with nki-run to see what ends it"


class WrongOutputForm(NkiMlirError):
    code = "NKI-SCORE-FORM"
    message = "{what} on {case}"
    fix = "return what the reference returns: the same number of tensors, with the same shapes and dtypes"


class WrongValues(NkiMlirError):
    code = "NKI-SCORE-VALUES"
    message = "output {number} differs from the reference on {case}: {difference}"
    fix = "compare with the reference at that element"


class InputChanged(NkiMlirError):
    code = "NKI-SCORE-INPUT"
    message = "the kernel changes its input {name} on {case}"
    fix = "write to tensors that the kernel allocates, or name the input in UPDATES of the reference"


class LeftToDevice(NkiMlirError):
    code = "NKI-SCORE-ORDER"
    message = ("on {case} the results change when parallel iterations and programs run in the opposite order, and "
               "fresh memory contains other bytes: {difference}")
    why = "a device may choose any order, and its fresh memory contains arbitrary bytes"
    fix = "let iterations write different elements, and write memory before you read it"


class UnwrittenMemory(NkiMlirError):
    code = "NKI-SCORE-UNWRITTEN"
    message = "on {case}: {what}"
    fix = "write every element before it is read or returned"


class BadReference(NkiMlirError):
    code = "NKI-SCORE-REFERENCE"
    message = "the reference {what}"
    fix = "{fix}"
