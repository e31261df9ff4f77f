# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Addresses of one on-chip memory while instructions are scheduled: the free ranges, and the last owners of bytes.

``FreeRanges`` allocates a buffer when its first instruction starts, and releases it when its last is complete. Buffers
with long live ranges come from one end and the others from the other, so that gaps stay large. ``LastOwners`` follows
an order whose addresses are known, and finds the buffers that occupied the bytes of a new buffer before it.
"""

from nki_mlir.targets.runtime.compiled_class import new_array


class FreeRanges:
    """The free bytes of a partition: ``count`` ranges in order, with their ``starts`` and ``ends``.

    ``bank``: the size of a bank, which only larger buffers cross; 0 without banks. ``released`` is, for each bank, the
    number of releases until its last one. If several banks have equal room, a buffer gets the least recently released:
    an instruction that runs later than scheduled then delays no other instruction that writes the bank. On devices this
    gains about 3%, as measured by others. Without ``rotates`` a buffer gets the first of equal banks, which leaves
    larger gaps. At most ``buffers`` buffers are allocated at once.
    """

    starts: list[int]
    ends: list[int]
    count: int
    bank: int
    rotates: bool
    released: list[int]
    releases: int

    def __init__(self, start: int, end: int, bank: int = 0, rotates: bool = True, buffers: int = 100) -> None:
        self.starts, self.ends = new_array(buffers + 2), new_array(buffers + 2)
        self.starts[0], self.ends[0], self.count = start, end, int(start < end)
        self.bank, self.rotates = bank, rotates
        self.released = new_array(-(-end // bank) if bank else 0)
        self.releases = 0

    def allocate(self, size: int, from_end: bool) -> int:
        """Allocate a buffer of that size in the smallest range that has room, and return its address; return -1 without
        such a range."""
        least, address = -1, -1
        if self.bank > 0 and self.rotates and size <= self.bank and not from_end:
            address = self.in_bank(size)
        else:
            for k in range(self.count):
                start, end = self.starts[k], self.ends[k]
                length = end - start
                if not (length < size or 0 <= least < length or (length == least and not from_end)):
                    at = end - size if from_end else start
                    if self.bank > 0:
                        at = self.fit(start, end, size, from_end)
                    if at >= 0:
                        least, address = length, at
        if address >= 0:
            self.cut(address, size)
        return address

    def in_bank(self, size: int) -> int:
        """Return an address in the bank with the least room that suffices, of equal ones the least recently released;
        -1 if no bank has room."""
        best, best_room, best_release = -1, 0, 0
        for k in range(self.count):
            start, end = self.starts[k], self.ends[k]
            while start < end:
                number = start // self.bank
                after = min(end, (number + 1) * self.bank)
                room, release = after - start, self.released[number]
                if room >= size and (best < 0 or room < best_room or (room == best_room and release < best_release)):
                    best, best_room, best_release = start, room, release
                start = after
        return best

    def cut(self, address: int, size: int) -> None:
        """Remove the bytes of a buffer from the free ranges."""
        starts, ends, k = self.starts, self.ends, 0
        while k + 1 < self.count and starts[k + 1] <= address:
            k += 1
        after, end = address + size, ends[k]
        if starts[k] == address:
            if after < end:
                starts[k] = after
            else:
                self.remove(k)
            return
        ends[k] = address
        if after < end:
            self.insert(k + 1, after, end)

    def insert(self, k: int, start: int, end: int) -> None:
        """Insert a range before the range with number ``k``."""
        starts, ends = self.starts, self.ends
        for at in range(self.count, k, -1):
            starts[at], ends[at] = starts[at - 1], ends[at - 1]
        starts[k], ends[k] = start, end
        self.count += 1

    def remove(self, k: int) -> None:
        """Remove the range with number ``k``."""
        starts, ends = self.starts, self.ends
        self.count -= 1
        for at in range(k, self.count):
            starts[at], ends[at] = starts[at + 1], ends[at + 1]

    def fit(self, start: int, end: int, size: int, from_end: bool) -> int:
        """Return an address in a range that crosses no bank; -1 if there is none."""
        bank = self.bank
        at = end - size if from_end else start
        after = (start + bank - 1) // bank * bank               # the first bank that begins in the range
        if at // bank != (at + size - 1) // bank:
            if from_end:
                at = (end - size) // bank * bank if size > bank else at // bank * bank + bank - size
            else:
                at = after
        elif size > bank and at % bank != 0:
            at = at // bank * bank if from_end else after
        return at if start <= at and at + size <= end else -1

    def release(self, address: int, size: int) -> None:
        """Release a buffer's bytes."""
        starts, ends, end, k = self.starts, self.ends, address + size, 0
        if self.bank > 0:
            self.releases += 1
            for number in range(address // self.bank, (end + self.bank - 1) // self.bank):
                self.released[number] = self.releases
        while k < self.count and starts[k] < address:
            k += 1
        joins_next, joins_previous = k < self.count and starts[k] == end, k > 0 and ends[k - 1] == address
        if joins_next and joins_previous:
            ends[k - 1] = ends[k]
            self.remove(k)
        elif joins_next:
            starts[k] = address
        elif joins_previous:
            ends[k - 1] = end
        else:
            self.insert(k, address, end)


class LastOwners:
    """The last owners of the bytes of a memory: ``count`` ranges in order, with their ``begins``, ``ends`` and
    ``owners``. At most ``buffers`` owners are recorded. ``earlier``: the result of ``take``."""

    begins: list[int]
    ends: list[int]
    owners: list[int]
    count: int
    earlier: list[int]

    def __init__(self, buffers: int) -> None:
        self.begins, self.ends, self.owners = (new_array(2 * buffers + 1) for _ in range(3))
        self.earlier = new_array(2 * buffers + 1)
        self.count = 0

    def set_owner(self, start: int, end: int, owner: int) -> int:
        """Make ``owner`` the owner of bytes. Store their last owners in ``earlier``, and return the number of these."""
        begins, ends, owners = self.begins, self.ends, self.owners
        low = self.first_after(ends, 0, start + 1)              # the first range that ends after ``start``
        high = self.first_after(begins, low, end)
        noted = 0
        for k in range(low, high):
            other, at = owners[k], 0
            while at < noted and self.earlier[at] != other:
                at += 1
            if at == noted:
                self.earlier[noted] = other
                noted += 1
        if high == low + 1 and begins[low] == start and ends[low] == end:
            owners[low] = owner
            return noted
        cuts_first, cuts_last = low < high and begins[low] < start, low < high and ends[max(high - 1, 0)] > end
        if cuts_last:
            last_end, last_owner = ends[high - 1], owners[high - 1]
        at = low
        if cuts_first:
            at += 1
        self.shift(high, at + 1 + cuts_last - high)
        if cuts_first:
            ends[low] = start
        begins[at], ends[at], owners[at] = start, end, owner
        if cuts_last:
            begins[at + 1], ends[at + 1], owners[at + 1] = end, last_end, last_owner
        return noted

    def first_after(self, values: list[int], low: int, value: int) -> int:
        """Return the first index from ``low`` on whose value is at least ``value``."""
        high = self.count
        while low < high:
            middle = (low + high) // 2
            if values[middle] < value:
                low = middle + 1
            else:
                high = middle
        return low

    def shift(self, first: int, by: int) -> None:
        """Move the ranges from number ``first`` on by ``by`` numbers."""
        begins, ends, owners = self.begins, self.ends, self.owners
        if by > 0:
            for k in range(self.count - 1, first - 1, -1):
                begins[k + by], ends[k + by], owners[k + by] = begins[k], ends[k], owners[k]
        elif by < 0:
            for k in range(first, self.count):
                begins[k + by], ends[k + by], owners[k + by] = begins[k], ends[k], owners[k]
        self.count += by
