# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ``scalar`` dialect: functions of the scalar library in the bodies of ``linalg.generic``."""
