# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ``help()`` says of public functions beyond their first sentence, read when somebody asks."""
