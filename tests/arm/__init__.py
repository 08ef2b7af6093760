"""The suite on aarch64 without such a machine: a sysroot, and qemu's user mode."""
