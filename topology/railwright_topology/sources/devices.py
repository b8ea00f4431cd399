"""What counts as an accelerator or as a network adapter: one rule for every reader.

1. A device that its own driver or its collective library lists as an accelerator is one (NCCL's
   ``<gpu>``, nvidia-smi, KFD, a rank table, a description).
2. Else its PCI class decides. Accelerators are 3D controllers (0302), processing accelerators
   (12xx), displays without a console (0380), vector engines among co-processors (0b40), and of the
   makers whose displays compute also VGA controllers (0300). The chip that a server shows its
   console with is none, whatever its class. Adapters are network controllers (02xx) except
   wireless ones (0280), and InfiniBand controllers (0c06); a library that lists a wireless one
   (NCCL's ``<nic>``) makes it none.
3. A virtual function is its adapter once more, where the adapter itself is shown. Known are the
   device ids of some makers; else a function without a name is one, if function 0 of the same slot
   has a name and another device id.
4. Where no PCI device is known, the name decides: an interface that software makes (loopback,
   bridge, veth, tunnel, VLAN, bond) is no adapter; the interfaces in a bond are.

Classes are those of the PCI Code and ID Assignment Specification; makers and devices are those of
the PCI ID repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from railwright_topology.parts import Kind, Layer, Part

_NETWORK, _WIRELESS, _INFINIBAND_BUS = "02", "0280", "0c06"
_INFINIBAND = ("0207", _INFINIBAND_BUS)

_ACCELERATING: Mapping[str, frozenset[str] | None] = {
    "0302": None,  # 3D controllers
    "12": None,  # processing accelerators
    "0380": None,  # displays without a console
    "0300": frozenset({"10de", "1002", "1ed5"}),  # displays of NVIDIA, AMD, Moore Threads
    "0b40": frozenset({"1bcf"}),  # vector engines of NEC; those of others encrypt and compress
}
"""Classes that compute, and the makers whose devices do; None for all makers."""
_CONSOLES: Mapping[str, frozenset[str]] = {
    "1002": frozenset({"4752", "4759", "515e", "5960", "5969"}),  # Rage XL, ES1000
    **dict.fromkeys(
        # ASPEED, Matrox, HiSilicon, Silicon Motion, XGI, Cirrus Logic, Nuvoton
        ("1a03", "102b", "19e5", "126f", "18ca", "1013", "1050"),
        frozenset[str](),
    ),
    # Of virtual machines: QEMU, Red Hat, virtio, VMware, Hyper-V, VirtualBox
    **dict.fromkeys(("1234", "1b36", "1af4", "15ad", "1414", "80ee"), frozenset[str]()),
}
"""Makers of chips for consoles: these devices of theirs, or all displays."""

_VIRTUAL_FUNCTIONS = frozenset(
    f"15b3:{device}" for device in ("1004", "1014", "1016", "1018", "101a", "101c", "101e", "a2d3")
) | frozenset(f"8086:{device}" for device in ("10ed", "1515", "1520", "154c", "37cd", "1889"))

_BY_SOFTWARE = re.compile(
    r"lo|lo:.*|(veth|docker|virbr|cni|cali|flannel|cilium|lxc|lxd|vxlan|geneve?|gre|gretap|erspan"
    r"|ip6tnl|ip6gre|ip_vti|ip6_vti|tunl|sit|tun|tap|wg|dummy|ifb|bond|team|vlan|macvlan|macvtap"
    r"|ipvlan|kube-|nodelocaldns|ovs-|vnet|vmnet|podman|nerdctl|antrea|weave|tailscale|zt"
    r"|rxe|siw)[\w.-]*|br([0-9]+|[-_].*)|.*[.@][0-9]+|usb[0-9]+|idrac"
)
"""Names that Linux, container engines and overlay networks give; rxe and siw are RDMA in software,
usb and idrac the cable to a server's own controller."""


def kind(class_code: str, vendor: str, device: str = "") -> Kind | None:
    """What a device of this class (four hexadecimal digits or more, such as 0302) is."""
    code, maker = class_code.lower(), vendor.lower()
    if code.startswith(_NETWORK):
        return None if is_wireless(code) else Kind.ADAPTER
    if code.startswith(_INFINIBAND_BUS):
        return Kind.ADAPTER
    makers = next((_ACCELERATING[its] for its in _ACCELERATING if code.startswith(its)), ())
    computes = makers is None or maker in makers
    if code.startswith("03") and _is_console(maker, device.lower()):
        computes = False
    return Kind.ACCELERATOR if computes else None


def describe(its: Kind, address: str, ids: Sequence[str], numa: int | None) -> Part:
    """The accelerator or adapter that a PCI function is, by its class, vendor and device; these are
    four hexadecimal digits or more, or empty where they are not known."""
    class_code, vendor, device = ids
    model = f"{vendor}:{device}" if vendor.strip("0") and device.strip("0") else ""
    layer = Layer.INFINIBAND if is_infiniband(class_code) else None
    return Part(address, its, address, model=model, numa=numa, layer=layer)


def is_wireless(class_code: str) -> bool:
    """Whether a controller of this class is no adapter, although it is one of a network."""
    return class_code.lower().startswith(_WIRELESS)


def is_infiniband(class_code: str) -> bool:
    """Whether an adapter of this class speaks InfiniBand."""
    return class_code.lower().startswith(_INFINIBAND)


def is_by_software(name: str) -> bool:
    """Whether an interface or RDMA device of this name is made by software."""
    return _BY_SOFTWARE.fullmatch(name) is not None


def without_virtual_functions(parts: Iterable[Part]) -> Iterator[Part]:
    """Leave out virtual functions, where a device of their maker is shown that is none."""
    every = [*parts]
    adapters = [part for part in every if part.kind == Kind.ADAPTER]
    makers = {part.model[:4] for part in adapters if part.model not in _VIRTUAL_FUNCTIONS}
    named = {part.pci: part.model for part in adapters if part.names}
    for part in every:
        first = named.get(f"{part.pci[:-1]}0", part.model)
        nameless = part.kind == Kind.ADAPTER and not part.names and first != part.model
        is_virtual = part.model in _VIRTUAL_FUNCTIONS and part.model[:4] in makers
        if not nameless and not is_virtual:
            yield part


def _is_console(maker: str, device: str) -> bool:
    devices = _CONSOLES.get(maker)
    return devices is not None and (not devices or device in devices)
