"""A virtual machine of QEMU, emulated in software unless it is asked for KVM: no device and no right of the host is needed for it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from image import Disks


@dataclass
class Machine:
    disks: Disks
    # A tar archive that is unpacked inside.
    payload: Path
    # What the kernel and systemd print.
    console: Path
    memory_mib: int
    accelerator: str
    # Added to the kernel's command line.
    parameters: str

    def lines(self) -> Iterator[str]:
        """Boots, and yields what the tests print until it has powered off."""
        with subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace") as process:
            try:
                for line in process.stdout:
                    yield line.replace("\r", "").rstrip("\n")
            finally:
                process.terminate()

    def command(self) -> list[str]:
        disks = self.disks
        # What is written goes into files that QEMU has already removed.
        temporary = "if=virtio,format=raw,snapshot=on,cache=unsafe,discard=unmap"
        append = f"console=ttyS0 root=/dev/vda rw panic=-1 quiet no_timer_check tsc_early_khz={tsc_khz()} systemd.show_status=0 {self.parameters}"
        return [
            "qemu-system-x86_64",
            "-M", "q35", "-accel", self.accelerator, "-cpu", "host" if self.accelerator.startswith("kvm") else "max",
            "-smp", "2", "-m", str(self.memory_mib),
            "-kernel", str(disks.kernel), "-initrd", str(disks.initrd), "-append", append,
            "-drive", f"file={disks.system},{temporary}", "-drive", f"file={disks.data},{temporary}",
            "-drive", f"file={self.payload},if=virtio,format=raw,readonly=on",
            "-nic", "user,model=virtio-net-pci,restrict=on", "-device", "virtio-rng-pci",
            "-display", "none", "-no-reboot", "-no-user-config", "-nodefaults",
            "-serial", f"file:{self.console}", "-serial", "file:/dev/stdout",
        ]  # fmt: skip


def tsc_khz() -> int:
    """Rate of the time-stamp counter, which emulated guests read too. On a busy host they cannot measure it: their timer is late."""
    line = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("cpu MHz")), "cpu MHz : 2000")
    return int(float(line.split(":")[1]) * 1000)
