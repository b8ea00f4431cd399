"""The performance of devices and links: published or measured figures, each with its source.

All bandwidths are bytes per second in one direction, all rates floating point operations per
second, all latencies seconds. No figure is fitted to a prediction: the data that the model is
evaluated on is in no source named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from railwright_scheduler.model.workload import Precision
from railwright_topology.relative_speed import EVEN, RelativeSpeed

SLOWEST = 1 / 64
"""What is measured slower than that counts as so slow: it could not take part."""


@dataclass(frozen=True, slots=True)
class Matmul:
    """The sustained performance on the product of an ``m`` by ``k`` and a ``k`` by ``n`` matrix of
    normally distributed numbers: data sheets state that for zeros, which need less power."""

    flops: float
    m: int
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator.

    ``matmul`` is measured with one tile of a result on each of ``multiprocessors``; ``memory`` is
    the bandwidth of a copy; ``attention`` the rate of fused attention with a causal mask going
    forward, ``attention_back`` going back. ``direct``: adapters of any maker read its memory.
    ``relative_speed`` scales all of it.
    """

    name: str
    matmul: Mapping[Precision, Matmul]
    multiprocessors: int
    memory: float
    attention: float
    attention_back: float
    maker: str
    direct: bool = False
    relative_speed: RelativeSpeed = EVEN


@dataclass(frozen=True, slots=True)
class LinkCost:
    """A way between two devices: what collectives reach on it, and what each step of one costs."""

    bandwidth: float
    step_s: float


class Algorithm(StrEnum):
    """How a library may carry out a collective, beside rings and messages straight to each rank."""

    TREE = "double binary tree"
    TWO_LEVEL = "two-level"
    NVLS = "NVLS"
    SHARP = "SHARP"
    PXN = "PXN"


@dataclass(frozen=True, slots=True)
class Switches:
    """What the switches of a network do to a message: ``adapters_s`` is its latency between two
    adapters without a switch, ``hop_s`` what each switch on the way adds, ``sharp_s`` that of a sum
    where they can add up what crosses them (SHARP). How many bytes pass is the adapters' affair."""

    name: str
    adapters_s: float
    hop_s: float
    sharp_s: float | None = None

    def latency_s(self, hops: int) -> float:
        """Of a small message, from memory to memory."""
        return self.adapters_s + hops * self.hop_s


@dataclass(frozen=True, slots=True)
class Host:
    """What its devices share of a node: ``clock`` while few cores are busy, as those that issue
    kernels are; ``memory``, all of it; ``copy`` between that and one device; ``load`` and ``store``
    of all disks."""

    clock: float
    memory: float
    copy: float
    load: float
    store: float


@dataclass(frozen=True, slots=True)
class Machine:
    """A node: its devices, the fabric inside, one network adapter for each device.

    Where the switches inside can add up what crosses them, ``nvls`` is the link to them meanwhile;
    ``sharp_s`` is the latency of a sum where those of the network do. ``algorithms`` are those of
    its library. ``mesh`` is the number of other devices that each device has a link of its own to,
    which share the bandwidth inside; 0 if a switch gives all of it to any of them.
    """

    name: str
    device: Device
    devices: int
    intra_node: LinkCost
    network: LinkCost
    all_to_all: float
    host: Host
    nvls: LinkCost | None = None
    sharp_s: float | None = None
    algorithms: tuple[Algorithm, ...] = tuple(Algorithm)
    mesh: int = 0

    def behind(self, switches: Switches, tiers: int, *, sharp: bool) -> Machine:
        """The same on a network of so many tiers, with SHARP set up or not. The farthest two
        decide; a step on the network is taken to have one switch in it."""
        farther_s = (hops(tiers) - 1) * switches.hop_s
        reduced_s = switches.sharp_s + farther_s if sharp and switches.sharp_s else None
        network = replace(self.network, step_s=self.network.step_s + farther_s)
        return replace(self, network=network, sharp_s=reduced_s)

    def reducing(self) -> Machine:
        """The same where the switches add up what crosses them: InfiniBand's do."""
        return replace(self, sharp_s=INFINIBAND_HDR.sharp_s)

    def of(self, devices: int) -> Machine:
        """The same with so many of its devices."""
        return replace(self, devices=devices)

    def at_speed(self, relative_speed: RelativeSpeed) -> Machine:
        """One like it that is so fast beside most: whose rail leads elsewhere sends by the others
        of its node."""
        if relative_speed == EVEN:
            return self
        products, memory = (
            max(SLOWEST, each) for each in (relative_speed.products, relative_speed.memory)
        )
        rails = max(1 / self.devices, relative_speed.rails)
        device = replace(self.device, relative_speed=RelativeSpeed(products, memory, rails))
        network = replace(self.network, bandwidth=self.network.bandwidth * rails)
        return replace(self, device=device, network=network)

    def contended(self, times: float) -> Machine:
        """The same where what leaves it takes so many times longer, as others send as well."""
        if times == 1.0:
            return self
        slower = replace(self.network, bandwidth=self.network.bandwidth / times)
        return replace(self, network=slower)


def hops(tiers: int) -> int:
    """Switches between two hosts that meet in so many tiers: up, across the highest, and down."""
    return 2 * tiers - 1


# Communication: NVIDIA/nccl 5067397c, src/graph/tuning.cc.
COLLECTIVE_S = 8.4e-6
"""Base latency of Simple, ring and tree."""
NVLINK_STEP_S = 3.4e-6
"""NVLink, ring, Simple."""
NETWORK_STEP_S = 14e-6
"""Network, ring and tree, Simple."""
TREE_SHARE = 0.92
"""Bandwidth of trees, as a share of a ring's."""
TREE_NVLINK_STEP_S = 4.0e-6
"""NVLink, tree, Simple."""
NVLS_S = 25e-6
"""NVLink, NVLS."""
SHARP_NVLINK_STEP_S = 3.7e-6
"""NVLink, CollNetDirect."""
SHARP_RANK_S = 0.4e-6
"""CollNetDirect, for each other rank of the node."""

COLLECTIVE_BLOCKS = 16
"""NVIDIA/nccl, issue 689: a collective has 16 blocks on a DGX A100, each on a multiprocessor that
other kernels get nothing of."""
LAUNCH_S = 0.9e-6
"""NVIDIA technical blog, Getting Started with CUDA Graphs, 2019: 3.8 - 2.9 us."""
MEMORY_TRIP_S = 466.3 / 1.41e9
"""Luo et al., 2402.13499: 466.3 cycles on A100 at 1.41 GHz."""

# NVIDIA-NeMo/Megatron-Bridge, pull request 1760: Qwen3-235B on DGX B200, 12 layers a rank, bound by
# the host: 16.0 s a step one by one, 17.2 s beside another micro-batch; 20.1 s in MXFP8, which
# casts with one kernel what goes into each product and comes back, of 16 experts and of attention.
ISSUED_S, ISSUED_BESIDE_S = 16.0 / 129.75 / 12, 17.2 / 129.75 / 12
"""How long a host of ``ISSUE_CLOCK`` takes to issue all kernels of one layer of experts in 16 bits,
forward and backward: one by one, and with another micro-batch's beside."""
CAST_ISSUED_S = (20.1 / 131.5 / 12 - ISSUED_BESIDE_S) / (4 * (16 + 1))
"""And each cast to 8 bits."""
ISSUE_CLOCK = 4.0e9
"""Intel ARK: Xeon Platinum 8570, max turbo, of DGX B200."""

_COPIED = 0.84
"""Share of the bandwidth on NVIDIA's data sheets that copies reach: GPUInspector.jl, 1,219 of
1,448 GiB/s on a DGX A100 of 40 GB."""

A100 = Device(
    "A100-SXM-80G",
    # thonking.ai, 2024: cuBLAS, 8192 cubed, normal numbers
    matmul=MappingProxyType({Precision.HALF: Matmul(257e12, 8192, 8192, 8192)}),
    multiprocessors=108,
    memory=_COPIED * 2.039e12,
    # FlashAttention-2 (2307.08691): forward, causal, heads of 128; of the peak up to 73 % forward,
    # and 63 % back
    attention=190e12,
    attention_back=63 / 73 * 190e12,
    maker="NVIDIA",
    direct=True,  # GPUDirect RDMA: other makers' PCIe devices read and write its memory
)
H100 = Device(
    "H100-SXM",
    # stas00/ml-engineering 0359db89, compute/accelerator/README.md: most that the slowest of a
    # node's 8 H200 sustains while all are busy; H100 has its multiprocessors and limit of 700 W.
    # That of 8 bits is 1,354 in the median, in 16 bits 745 of 755.
    matmul=MappingProxyType(
        {
            Precision.HALF: Matmul(745e12, 1536, 2816, 6144),
            Precision.FP8: Matmul(745 / 755 * 1354e12, 1536, 2816, 10_240),
        }
    ),
    multiprocessors=132,
    memory=_COPIED * 3.35e12,
    # FlashAttention-3 (2407.08608), figures 5 and 6: cuDNN, heads of 128, 8k tokens, forward,
    # causal; 518 back without a mask, where forward it is 600
    attention=529e12,
    attention_back=518e12 * 529 / 600,
    maker="NVIDIA",
    direct=True,  # GPUDirect RDMA: other makers' PCIe devices read and write its memory
)

INFINIBAND_HDR = Switches(
    "InfiniBand HDR",
    adapters_s=0.6e-6,  # NVIDIA ConnectX-6 user manual, introduction: less than 600 ns
    hop_s=0.13e-6,  # NVIDIA Quantum QM8790 product brief: less than 130 ns from port to port
    sharp_s=31e-6,  # the same brief: SHARP; NCCL (as above): network, CollNetDirect
)
ROCE = Switches(
    "RoCE",
    adapters_s=0.8e-6,  # Mellanox ConnectX-6 EN product brief: less than 0.8 us
    hop_s=0.3e-6,  # Mellanox on Spectrum (techrepublic.com, 2015): 300 ns from port to port
)

_PCIE_4 = 24.8e9
"""NVIDIA developer forum 352186, nvbandwidth: 24.8 GB/s on PCIe 4.0, A100-SXM4."""
_LOAD, _STORE = 8 * 7.0e9, 8 * 3.8e9
"""8 drives of 3.84 TB (user guide), each as the data sheet of Samsung's PM1733 says."""

# Bandwidths of links: stas00/ml-engineering 744d01e, network/README.md.
DGX_A100 = Machine(
    "DGX A100",
    A100,
    devices=8,
    intra_node=LinkCost(232e9, NVLINK_STEP_S),  # all-reduce bus bandwidth, 8 GPUs
    network=LinkCost(24e9, NETWORK_STEP_S),  # 192 GB/s over 8 adapters
    all_to_all=210e9,  # all-to-all bus bandwidth, 8 GPUs
    host=Host(
        clock=3.4e9,  # DGX A100 data sheet: EPYC 7742, max boost
        memory=2 * 204.8e9,  # AMD data sheet: EPYC 7742, 8 channels of DDR4-3200 each
        copy=_PCIE_4,
        load=_LOAD,
        store=_STORE,
    ),
)

_NVLS_BANDWIDTH = 480e9 * 9 / 14
"""The same page: all-reduce bus bandwidth of 480 GB/s, 8 GPUs, NVLS, H200, which has H100's NVLink;
each sends 9/8 of its bytes (Klenk et al., 2020), where the bus counts 14/8."""

DGX_H100 = Machine(
    "DGX H100",
    H100,
    devices=8,
    intra_node=LinkCost(370e9, NVLINK_STEP_S),  # all-reduce bus bandwidth, 8 GPUs, ring
    network=LinkCost(375e9 / 8, NETWORK_STEP_S),  # 370 to 380 GB/s
    all_to_all=320e9,  # all-to-all bus bandwidth, 8 GPUs
    host=Host(
        clock=3.8e9,  # DGX H100 data sheet: Xeon Platinum 8480C, max boost
        memory=2 * 307.2e9,  # Intel ARK: Xeon Platinum 8480, 8 channels of DDR5-4800 each
        copy=2 * _PCIE_4,  # PCIe 5.0, twice as fast
        load=_LOAD,
        store=_STORE,
    ),
    nvls=LinkCost(_NVLS_BANDWIDTH, NVLS_S),
)

_H800_NVLINK = 200e9 / 450e9
"""As DGX H100, with 400 instead of 900 GB/s of NVLink (Zhao et al., 2025, 2505.09343, section
2)."""

HGX_H800 = replace(
    DGX_H100,
    name="HGX H800",
    device=replace(H100, name="H800-SXM"),
    intra_node=LinkCost(_H800_NVLINK * DGX_H100.intra_node.bandwidth, NVLINK_STEP_S),
    all_to_all=_H800_NVLINK * DGX_H100.all_to_all,
    nvls=LinkCost(_H800_NVLINK * _NVLS_BANDWIDTH, NVLS_S),
)

# samuel-bohman/AI-benchmarking-guide 3de0c294, a fork of Azure's, ND_MI300X_v5_results.md: copy in
# HBM, copy from the host, disks, and the processor, which is DGX H100's. Latencies are those of
# NCCL, from which RCCL is derived.
MI300X = Device(
    "MI300X",
    # ROCm/rocm-blogs 8e011952, Measuring Max-Achievable FLOPs - Part 2, on a normal distribution
    matmul=MappingProxyType(
        {
            Precision.HALF: Matmul(708e12, 4096, 4864, 32_896),
            # Measured with n = 3648: tiles of 256 by 192 instead of 256, also one a multiprocessor.
            Precision.FP8: Matmul(1273e12, 4096, 4864, 32_896),
        }
    ),
    multiprocessors=304,
    memory=4.11e12,
    # ROCm/aiter 0403bcdf, op_tests/cpp/mha/README.md: causal, 4 sequences of 8k tokens, 64 heads of
    # 128; backward accumulated in 32 bits
    attention=540.5e12,
    attention_back=434.6e12,
    maker="AMD",
    direct=True,  # ROCm/cvs, as below, with Broadcom's adapters
)
MI300X_PLATFORM = Machine(
    "MI300X Platform",
    MI300X,
    devices=8,
    intra_node=LinkCost(312.9e9, NVLINK_STEP_S),  # stas00 0030e63f: all-reduce, 8 GPUs
    # ROCm/cvs 00fff433, rccl_config.json: all-reduce expected of two nodes with 8 adapters each
    network=LinkCost(350e9 / 8, NETWORK_STEP_S),
    # ROCm/rocm-blogs 0e81c2ca, Understanding RCCL Bandwidth and xGMI Performance: the slowest GPU
    all_to_all=314.8e9,
    host=Host(clock=3.8e9, memory=2 * 307.2e9, copy=55e9, load=55.9e9, store=52.1e9),
    algorithms=(Algorithm.TREE,),
    mesh=7,  # the same blog: a link to each other GPU
)

MACHINES: Mapping[str, Machine] = MappingProxyType(
    {machine.name: machine for machine in (DGX_A100, DGX_H100, HGX_H800, MI300X_PLATFORM)}
)

NETWORKS: Mapping[str, Switches] = MappingProxyType(
    {switches.name: switches for switches in (INFINIBAND_HDR, ROCE)}
)
