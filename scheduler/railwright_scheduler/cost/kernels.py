"""How long the kernels of a training step take on one device.

A matrix product is cut into tiles of the result, as many at a time as there are multiprocessors
(CUTLASS, "Efficient GEMM in CUDA": threadblock tiles and waves). The last wave takes as long as a
full one; and each wave fills its pipeline and writes its tiles while nothing is multiplied. A
kernel that computes little takes as long as memory takes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from railwright_scheduler.cost.hardware import LAUNCH_S, MEMORY_TRIP_S, Device
from railwright_scheduler.model.workload import Precision

HALF_BYTES = 2

FILL_S = 2 * MEMORY_TRIP_S
"""Of a wave nothing is multiplied before its first operands are there, or after its last."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A part of the result, by its sides."""

    rows: int
    columns: int

    @property
    def used(self) -> float:
        """How often each of its operands is, in the middle."""
        return self.rows * self.columns / (self.rows + self.columns)


TILES = (Tile(256, 128), Tile(128, 256), Tile(128, 128), Tile(64, 128), Tile(128, 64))
"""The largest first: others are slower by as much as they use operands less often."""


@dataclass(frozen=True, slots=True)
class Product:
    """``batch`` products of an m by k with a k by n matrix in one kernel, which runs ``times``."""

    m: int
    n: int
    k: int
    batch: int = 1
    times: int = 1

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.times * self.batch * self.m * self.n * self.k

    @property
    def gradients(self) -> tuple[Product, Product]:
        """The products that give the gradients of the two operands."""
        left = Product(self.m, self.k, self.n, self.batch, self.times)
        right = Product(self.k, self.n, self.m, self.batch, self.times)
        return left, right

    def pieces(self, count: int) -> Product:
        """The same, one part of its rows after the other."""
        return Product(self.m // count, self.n, self.k, self.batch, self.times * count)


@dataclass(frozen=True, slots=True)
class Pass:
    """Matrix products, operations of fused attention, and bytes that each other kernel moves; of
    those ``repeated`` also how often they run."""

    products: tuple[Product, ...]
    attention: float
    traffic: tuple[float, ...]
    repeated: tuple[tuple[float, int], ...] = ()

    def __add__(self, other: Pass) -> Pass:
        return Pass(
            self.products + other.products,
            self.attention + other.attention,
            self.traffic + other.traffic,
            self.repeated + other.repeated,
        )


@dataclass(frozen=True, slots=True)
class LayerWork:
    """The kernels of one layer, or of a part of one."""

    forward: Pass
    backward: Pass

    def __add__(self, other: LayerWork) -> LayerWork:
        return LayerWork(self.forward + other.forward, self.backward + other.backward)


@dataclass(frozen=True, slots=True)
class Stream:
    """Bytes of what flows from layer to layer: of all tokens, and of those that a rank has between
    tensor-parallel products."""

    whole: float
    between: float


def product_s(product: Product, device: Device, precision: Precision) -> float:
    """How long a matrix product takes, all its times."""
    flops = _tile_flops(device, precision) * device.relative_speed.products
    busy_s = min(_tiled_s(product, tile, device, flops) for tile in TILES)
    values = product.m * product.k + product.k * product.n + product.m * product.n
    once_s = max(busy_s, HALF_BYTES * product.batch * values / _memory(device)) + LAUNCH_S
    return product.times * once_s


def memory_s(size: float, device: Device) -> float:
    """How long a kernel takes that reads and writes so many bytes and computes next to nothing."""
    return size / _memory(device) + LAUNCH_S


def _memory(device: Device) -> float:
    """Bytes a second of this one's."""
    return device.memory * device.relative_speed.memory


def _tile_flops(device: Device, precision: Precision) -> float:
    """The rate while tiles are multiplied, of what the whole product reaches that was measured on
    most of its kind."""
    measured = device.matmul[precision]
    product = Product(measured.m, measured.n, measured.k)
    waves = _waves(product, TILES[0], device)
    busy_s = product.operations / measured.flops - waves * _overhead_s(
        TILES[0], device, device.memory
    )
    return waves * _wave_operations(product.k, TILES[0], device) / busy_s


def _tiled_s(product: Product, tile: Tile, device: Device, flops: float) -> float:
    slower = TILES[0].used / tile.used
    multiplied_s = _wave_operations(product.k, tile, device) / flops * slower
    overhead_s = _overhead_s(tile, device, _memory(device))
    return _waves(product, tile, device) * (multiplied_s + overhead_s)


def _wave_operations(k: int, tile: Tile, device: Device) -> int:
    return 2 * tile.rows * tile.columns * k * device.multiprocessors


def _waves(product: Product, tile: Tile, device: Device) -> int:
    tiles = math.ceil(product.m / tile.rows) * math.ceil(product.n / tile.columns) * product.batch
    return math.ceil(tiles / device.multiprocessors)


def _overhead_s(tile: Tile, device: Device, memory: float) -> float:
    written = HALF_BYTES * tile.rows * tile.columns * device.multiprocessors
    return written / memory + FILL_S


def attention_s(operations: float, device: Device, flops: float) -> float:
    """How long fused attention takes, at the ``flops`` that most of its kind reach."""
    return operations / (flops * device.relative_speed.products) + LAUNCH_S
