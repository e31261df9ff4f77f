# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Records of buffers."""

from dataclasses import fields

from nki_mlir.dialects.access import SBUF
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.neuron.codegen.records import DeviceBuffer


def test_copied__has_each_field_and_is_another_buffer():
    special = {"space": SBUF, "shape": (64, 3, 5), "dtype": FLOAT32}
    names = [field.name for field in fields(DeviceBuffer) if field.init]
    buffer = DeviceBuffer(**{name: special.get(name, object()) for name in names})
    assert buffer.bytes_per_partition == 60
    copy = buffer.copied()
    assert copy is not buffer and copy != buffer
    assert all(getattr(copy, name) is getattr(buffer, name) for name in names)
    assert copy.bytes_per_partition == 60
